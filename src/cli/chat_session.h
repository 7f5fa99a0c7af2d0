// A conversation with one model: the messages so far, how answers are sampled, and what is done when they no longer fit the context (the oldest turns go,
// the system message stays, and it is said).
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "cli/loaded_model.h"
#include "engine/generate.h"
#include "text/chat.h"

namespace ridge {

struct ChatOptions {
  SamplingParams params;
  std::string system;
  bool raw = false;                                    // text is continued as it stands: no template, no memory of earlier turns
  Json template_variables = Json::object();            // enable_thinking and the like
};

struct Answer {
  Generation generation;
  int n_dropped_messages = 0;                          // oldest messages that were left out to fit the context
};

class ChatSession {
 public:
  using OnText = std::function<void(std::string_view piece)>;
  ChatSession(LoadedModel& model, ChatOptions options);

  // Adds the user's turn and the model's. Throws Error when the text alone is longer than the context; the conversation is then as before.
  Answer ask(const std::string& text, const OnText& on_text, const std::atomic<bool>* interrupted);
  Answer regenerate(const OnText& on_text, const std::atomic<bool>* interrupted);          // another answer to the last question

  void reset() { messages_ = Json::array(); }
  void set_system(std::string text) { options_.system = std::move(text); }
  const std::string& system() const { return options_.system; }
  SamplingParams& params() { return options_.params; }
  bool raw() const { return options_.raw; }
  bool has_turns() const { return !messages_.empty(); }
  const Json& messages() const { return messages_; }

  void save(const std::string& path) const;            // {"model", "system", "messages"}
  int load(const std::string& path);                   // returns the number of messages

 private:
  std::vector<int32_t> prompt_ids(int& n_dropped) const;
  Answer answer(const OnText& on_text, const std::atomic<bool>* interrupted);
  LoadedModel& model_;
  ChatOptions options_;
  std::unique_ptr<ChatTemplate> template_;
  Json messages_ = Json::array();                      // user and assistant in turn, without the system message
};

// Models that were never taught a conversation (no template, no ChatML tokens) only continue text.
bool can_chat(const LoadedModel& model);

}  // namespace ridge
