// Takes an answer apart while it streams, by its family's description. Text waits in `pending_` until what it is no longer depends on what follows; so any cutting of the
// same text gives the same parts.
#pragma once
#include "text/answer_parser.h"
#include "text/call_reader.h"

namespace ridge {

std::string_view trimmed(std::string_view text);
size_t overlap(std::string_view text, std::string_view marker);        // how many characters at the end of `text` may be the beginning of `marker`

class StreamParser final : public AnswerParser {
 public:
  // `in_thought`: the prompt has opened one. `begun`: what the prompt's end has already begun of the answer.
  StreamParser(const AnswerFamily& family, std::string reasoning_begin, std::string reasoning_end, bool in_thought, std::string begun, bool with_tools, const Json& tools);
  AnswerDelta push(std::string_view text) override;
  AnswerDelta finish() override;
  int n_calls() const override { return n_calls_; }

 private:
  enum class State : uint8_t { header, thought, content, arguments, tail, next_in_list, next_in_section, next_bare, tags, value };
  AnswerDelta run();
  bool step();                               // false: more text is needed
  bool step_header();
  bool step_thought();
  bool step_content();
  bool step_call(size_t trigger_size);
  bool step_arguments();
  bool step_tail();
  bool step_next();
  bool step_tags();
  bool step_value();
  void give_content(std::string_view text);
  void give_reasoning(std::string_view text);
  void begin_call(const std::string& name);
  void give_arguments(std::string_view text);
  void give_call(const std::string& name, const std::string& arguments);
  bool not_a_call(size_t trigger_size);      // it is content after all
  void after_call();
  bool take_head(const CallHead& head);      // after one was read
  enum class Type : uint8_t { unknown, text, other };
  Type type_of(const std::string& key) const;
  void end_value(std::string text);

  const AnswerFamily& family_;
  std::string reasoning_begin_, reasoning_end_;
  bool with_tools_, final_ = false, trims_;
  Json tools_;
  std::string pending_;
  State state_;
  AnswerDelta delta_;
  std::string held_content_, held_reasoning_;        // white space that is dropped where nothing follows
  bool has_content_ = false, has_reasoning_ = false, thought_allowed_ = true;
  int n_calls_ = 0;
  JsonExtent extent_;
  int depth_ = 0;                            // of braces after the arguments
  bool in_text_ = false, escaped_ = false;
  std::string call_name_, key_, value_;      // of tags
  Type type_ = Type::unknown;
  bool first_key_ = true, value_begun_ = false;
};

}  // namespace ridge
