// Answers of gpt-oss: messages with a header that names the channel and, for calls, the recipient.
//   <|channel|>analysis<|message|>THOUGHT<|end|><|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{..}<|call|>
#pragma once
#include "text/answer_parser.h"

namespace ridge {

class HarmonyParser final : public AnswerParser {
 public:
  HarmonyParser(bool with_tools, std::string begun) : with_tools_(with_tools), pending_(std::move(begun)) {}
  AnswerDelta push(std::string_view text) override;
  AnswerDelta finish() override;
  int n_calls() const override { return n_calls_; }

 private:
  enum class Body : uint8_t { none, thought, content, call };
  void run(bool final);
  void open(std::string_view header);
  void give(std::string_view text);

  bool with_tools_;
  std::string pending_;
  AnswerDelta delta_;
  Body body_ = Body::none;                   // none: inside a header
  int n_calls_ = 0;
};

}  // namespace ridge
