#include "cli/chat_session.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"

namespace ridge {
namespace {

constexpr int kRoomForAnswer = 256;                    // tokens left free when old turns are dropped, where the context is long enough

}  // namespace

bool can_chat(const LoadedModel& model) { return !model.checkpoint.chat_template.empty() || model.tokenizer->find("<|im_start|>").has_value(); }

ChatSession::ChatSession(LoadedModel& model, ChatOptions options) : model_(model), options_(std::move(options)) {
  const Checkpoint& c = model_.checkpoint;
  if (!options_.raw) template_ = std::make_unique<ChatTemplate>(ChatFormat{c.chat_template, c.bos_token, c.eos_token}, c.name + ": chat template");
}

// The prompt with as many of the latest messages as leave room for an answer.
std::vector<int32_t> ChatSession::prompt_ids(int& n_dropped) const {
  const int context = model_.engine->max_context();
  n_dropped = 0;
  if (options_.raw) {
    auto ids = model_.tokenizer->encode(messages_.back()["content"].get<std::string>(), true);
    if (ids.empty() && model_.checkpoint.bos_id) ids.push_back(*model_.checkpoint.bos_id);
    if (int(ids.size()) >= context) fail("the prompt is {} tokens long, but the context holds {}: shorten it, or give a larger --ctx-size", ids.size(), context);
    return ids;
  }
  const int wanted = options_.params.max_tokens > 0 ? options_.params.max_tokens : kRoomForAnswer;
  const int room = std::min(wanted, context / 4);
  for (size_t first = 0;; first += 2) {
    Json messages = Json::array();
    if (!options_.system.empty()) messages.push_back({{"role", "system"}, {"content", options_.system}});
    for (size_t i = first; i < messages_.size(); ++i) messages.push_back(messages_[i]);
    auto ids = model_.tokenizer->encode(template_->render(messages, true, options_.template_variables));
    const bool last = first + 2 >= messages_.size();
    if (int(ids.size()) + room <= context || (last && int(ids.size()) < context)) {
      n_dropped = int(first);
      return ids;
    }
    if (last) fail("the prompt is {} tokens long, but the context holds {}: shorten it, or give a larger --ctx-size", ids.size(), context);
  }
}

Answer ChatSession::answer(const OnText& on_text, const std::atomic<bool>* interrupted) {
  Answer result;
  Request request{.prompt = prompt_ids(result.n_dropped_messages), .params = options_.params};
  Generator generator(*model_.engine, *model_.tokenizer);
  result.generation = generator.run(std::move(request), {.on_text = [&](size_t, std::string_view piece) { on_text(piece); }, .interrupted = interrupted});
  if (result.generation.finish == FinishReason::error) fail("the answer failed: {}", result.generation.error);
  messages_.push_back({{"role", "assistant"}, {"content", result.generation.text}});
  return result;
}

Answer ChatSession::ask(const std::string& text, const OnText& on_text, const std::atomic<bool>* interrupted) {
  if (options_.raw) messages_ = Json::array();
  messages_.push_back({{"role", "user"}, {"content", text}});
  try {
    return answer(on_text, interrupted);
  } catch (const Error&) {
    messages_.erase(messages_.size() - 1);
    throw;
  }
}

Answer ChatSession::regenerate(const OnText& on_text, const std::atomic<bool>* interrupted) {
  if (messages_.empty()) fail("there is no answer yet to give again");
  const Json before = messages_;
  if (messages_.back()["role"] == "assistant") messages_.erase(messages_.size() - 1);
  try {
    return answer(on_text, interrupted);
  } catch (const Error&) {
    messages_ = before;
    throw;
  }
}

void ChatSession::save(const std::string& path) const {
  const Json all = {{"model", model_.checkpoint.name}, {"system", options_.system}, {"messages", messages_}};
  write_file(path, all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

int ChatSession::load(const std::string& path) {
  const Json all = read_json_file(path);
  const Json* messages = all.is_array() ? &all : all.is_object() && all.contains("messages") ? &all["messages"] : nullptr;
  if (!messages || !messages->is_array()) fail("{}: no conversation; expected {{\"messages\": [...]}} as /save writes it", path);
  Json turns = Json::array();
  std::string system = all.is_object() && all.contains("system") && all["system"].is_string() ? all["system"].get<std::string>() : "";
  for (const Json& m : *messages) {
    const bool good = m.is_object() && m.contains("role") && m["role"].is_string() && m.contains("content") && m["content"].is_string();
    if (!good) fail("{}: message {} has no \"role\" and \"content\" that are texts", path, turns.size());
    const std::string role = m["role"].get<std::string>();
    if (role == "system") system = m["content"].get<std::string>();
    else if (role == (turns.size() % 2 == 0 ? "user" : "assistant")) turns.push_back({{"role", role}, {"content", m["content"]}});
    else fail("{}: message {} is of '{}', but user and assistant take turns", path, turns.size(), role);
  }
  messages_ = std::move(turns);
  options_.system = std::move(system);
  return int(messages_.size());
}

}  // namespace ridge
