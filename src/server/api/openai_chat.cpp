// /v1/chat/completions.
#include <utility>

#include "server/api/conversation.h"
#include "server/api/handlers.h"
#include "server/api/job_fields.h"
#include "server/api/shapes.h"

namespace ridge {
namespace {

class ChatWriter : public AnswerWriter {
 public:
  ChatWriter(ServicePtr service, const ChatJob& job, const std::string& request_id)
      : service_(std::move(service)), n_logprobs_(job.params.n_logprobs), include_reasoning_(job.include_reasoning), include_usage_(job.include_usage),
        continuous_(job.continuous_usage), return_ids_(job.return_token_ids), id_("chatcmpl-" + request_id), created_(unix_seconds()) {
    head_ = fmt::format("{{\"id\":{},\"object\":\"chat.completion.chunk\",\"created\":{},\"model\":{},", json_quoted(id_), created_, json_quoted(service_->name()));
  }

  std::string whole(const std::vector<Answer>& answers, const Usage& usage) override {
    Json choices = Json::array();
    for (const Answer& answer : answers) {
      Json message = {{"role", "assistant"}, {"content", answer.calls.empty() || !answer.content.empty() ? Json(answer.content) : Json()}, {"refusal", nullptr}};
      if (include_reasoning_ && !answer.reasoning.empty()) message["reasoning_content"] = message["reasoning"] = answer.reasoning;
      if (!answer.calls.empty()) {
        Json calls = Json::array();
        for (const ToolCall& call : answer.calls) calls.push_back({{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
        message["tool_calls"] = std::move(calls);
      }
      Json choice = {{"index", answer.index}, {"message", std::move(message)}, {"logprobs", logprobs(answer.tokens)}, {"finish_reason", answer.finish}, {"stop_reason", stop_reason(answer)}};
      if (return_ids_) choice["token_ids"] = ids_of(answer.tokens);
      choices.push_back(std::move(choice));
    }
    Json body = {{"id", id_}, {"object", "chat.completion"}, {"created", created_}, {"model", service_->name()}, {"choices", std::move(choices)}, {"usage", usage_json(usage)}};
    if (!answers.empty() && !answers[0].prompt_logprobs.empty()) body["prompt_logprobs"] = prompt_logprobs_json(service_->tokenizer, answers[0].prompt_logprobs);
    return dumped(body);
  }

  std::string begin(const Usage&) override { return {}; }

  std::string piece(const Answer& answer, const AnswerPiece& piece, const Usage& usage) override {
    std::string out = role(answer);
    const AnswerDelta& delta = piece.delta;
    std::vector<Sampled>& held = choice(answer.index).held;
    held.insert(held.end(), piece.tokens.begin(), piece.tokens.end());
    const bool has_reasoning = include_reasoning_ && !delta.reasoning.empty();
    if (!has_reasoning && delta.content.empty() && delta.calls.empty()) return out;
    std::string fields;
    const auto add = [&](std::string_view name, const std::string& value) { fields += fmt::format("{}\"{}\":{}", fields.empty() ? "" : ",", name, value); };
    if (has_reasoning) {
      add("reasoning_content", json_quoted(delta.reasoning));
      add("reasoning", json_quoted(delta.reasoning));
    }
    if (!delta.content.empty()) add("content", json_quoted(delta.content));
    if (!delta.calls.empty()) add("tool_calls", dumped(calls_of(answer, delta)));
    out += chunk(answer.index, fields, "", nullptr, usage);
    return out;
  }

  std::string finished(const Answer& answer, const Usage& usage) override {
    return role(answer) + chunk(answer.index, "", json_quoted(answer.finish), stop_reason(answer), usage);
  }

  std::string end(const std::vector<Answer>&, const Usage& usage) override {
    std::string out;
    if (include_usage_) out = "data: " + head_ + "\"choices\":[],\"usage\":" + dumped(usage_json(usage)) + "}\n\n";
    return out + "data: [DONE]\n\n";
  }

  std::string failed(const std::string& message) override { return sse(error_json(500, message, "", "engine_error")) + "data: [DONE]\n\n"; }

 private:
  struct Choice { bool spoke = false; std::vector<Sampled> held; };      // held: sampled since the last chunk
  Choice& choice(int index) {
    if (size_t(index) >= choices_.size()) choices_.resize(size_t(index) + 1);
    return choices_[size_t(index)];
  }
  static Json stop_reason(const Answer& answer) { return answer.stop.empty() ? Json() : Json(answer.stop); }
  static Json ids_of(const std::vector<Sampled>& tokens) {
    Json ids = Json::array();
    for (const Sampled& sampled : tokens) ids.push_back(sampled.token);
    return ids;
  }
  Json logprobs(const std::vector<Sampled>& tokens) const {
    if (n_logprobs_ < 0) return nullptr;
    return {{"content", logprob_entries(service_->tokenizer, tokens, n_logprobs_)}, {"refusal", nullptr}};
  }
  Json calls_of(const Answer& answer, const AnswerDelta& delta) const {
    Json calls = Json::array();
    for (const AnswerDelta::Call& call : delta.calls) {
      Json made = {{"index", call.index}};
      if (!call.name.empty()) {
        made["id"] = answer.calls[size_t(call.index)].id;
        made["type"] = "function";
        made["function"] = {{"name", call.name}, {"arguments", call.arguments}};
      } else {
        made["function"] = {{"arguments", call.arguments}};
      }
      calls.push_back(std::move(made));
    }
    return calls;
  }
  // The first chunk of every choice says who speaks.
  std::string role(const Answer& answer) {
    if (std::exchange(choice(answer.index).spoke, true)) return {};
    return fmt::format("data: {}\"choices\":[{{\"index\":{},\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}]{}}}\n\n", head_, answer.index,
                       include_usage_ && !continuous_ ? ",\"usage\":null" : "");
  }
  std::string chunk(int index, const std::string& delta, const std::string& finish, const Json& stop, const Usage& usage) {
    const std::vector<Sampled> held = std::exchange(choice(index).held, {});
    const std::string probs = n_logprobs_ >= 0 && !held.empty() ? dumped(logprobs(held)) : "null";
    std::string out = fmt::format("data: {}\"choices\":[{{\"index\":{},\"delta\":{{{}}},\"logprobs\":{},\"finish_reason\":{}", head_, index, delta, probs, finish.empty() ? "null" : finish);
    if (!stop.is_null()) out += ",\"stop_reason\":" + dumped(stop);
    if (return_ids_) out += ",\"token_ids\":" + dumped(ids_of(held));
    out += "}]";
    if (continuous_) out += ",\"usage\":" + dumped(usage_json(usage));
    else if (include_usage_) out += ",\"usage\":null";
    return out + "}\n\n";
  }

  ServicePtr service_;
  int n_logprobs_;
  bool include_reasoning_, include_usage_, continuous_, return_ids_;
  std::string id_, head_;
  int64_t created_;
  std::vector<Choice> choices_;
};

}  // namespace

ChatJob parse_chat(const Json& body, const Service& service) {
  const Fields fields(body);
  ChatJob job;
  read_job(job, fields, service);
  job.messages = read_messages(fields);
  read_tools(job, fields);
  if (job.params.max_tokens == 0) fields.refuse(fields.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens", "must be at least 1");
  if (fields.boolean("logprobs").value_or(false)) job.params.n_logprobs = read_top_logprobs(fields, "top_logprobs", service, 0);
  else if (fields.integer("top_logprobs", 0, service.options.max_logprobs).value_or(0) > 0) fields.refuse("top_logprobs", "needs logprobs = true");
  for (const char* other : {"audio", "web_search_options", "chat_template"})
    if (fields.has(other)) fields.refuse(other, "is not supported by this server; leave it out");
  for (const std::string& modality : fields.texts("modalities"))
    if (modality != "text") fields.refuse("modalities", "this model writes text alone");
  if (const auto variables = fields.object("chat_template_kwargs")) job.template_variables = variables->json();
  if (const auto effort = fields.text("reasoning_effort")) {
    job.template_variables["reasoning_effort"] = *effort;
    if (*effort == "none") job.template_variables["enable_thinking"] = false;
  }
  job.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  job.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(!job.continue_final_message);
  if (job.continue_final_message && job.add_generation_prompt) fields.refuse("continue_final_message", "cannot be combined with add_generation_prompt = true");
  job.include_reasoning = fields.boolean("include_reasoning").value_or(true);
  if (const auto format = fields.one_of("reasoning_format", {"none", "auto", "deepseek", "deepseek-legacy"})) job.split_reasoning = *format != "none";
  for (const char* name : {"thinking_budget", "thinking_token_budget", "thinking_budget_tokens", "reasoning_budget"})
    if (const auto budget = fields.integer(name, -1, 1 << 28)) job.thinking_budget = int(*budget);
  return job;
}

void handle_chat(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const ChatJob job = parse_chat(body_of(request), *service);
  std::vector<Prepared> prompts;
  prompts.push_back(prepare_chat(*service, job));
  answer_request(service, reply, std::move(prompts), job, std::make_unique<ChatWriter>(named_for(service, job), job, request.id), openai_error);
}

}  // namespace ridge
