// /v1/responses: the same conversation with other names. Its input is a list of items (messages, function calls, their outputs), its output too; a stream opens, fills
// and closes the items one after another. Nothing is stored: a conversation is sent whole each time.
#include "server/api/conversation.h"
#include "server/api/handlers.h"
#include "server/api/job_fields.h"
#include "server/api/shapes.h"

namespace ridge {
namespace {

void add_item(Json& out, const Json& json, const std::string& at) {
  const Fields item(json, at);
  const std::string type = item.text("type").value_or("message");
  if (type == "message") {
    const auto role = item.one_of("role", {"system", "developer", "user", "assistant"});
    if (!role) refuse_field(at + ".role", "is missing: system, developer, user or assistant");
    out.push_back({{"role", *role}, {"content", text_of(item.required("content", "a string or a list of parts"), at + ".content")}});
  } else if (type == "function_call") {
    const auto name = item.text("name");
    if (!name) refuse_field(at + ".name", "is missing");
    const Json call = {{"type", "function"}, {"id", item.text("call_id").value_or("")}, {"function", {{"name", *name}, {"arguments", item.text("arguments").value_or("{}")}}}};
    // Calls of one turn stand side by side.
    if (!out.empty() && out.back()["role"] == "assistant" && out.back().contains("tool_calls")) out.back()["tool_calls"].push_back(call);
    else out.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({call})}});
  } else if (type == "function_call_output") {
    out.push_back({{"role", "tool"}, {"tool_call_id", item.text("call_id").value_or("")}, {"content", text_of(item.required("output", "what the function gave"), at + ".output")}});
  } else if (type != "reasoning") {                      // thoughts of earlier turns are not shown to a model again
    item.refuse("type", "must be message, function_call, function_call_output or reasoning");
  }
}

Json tools_of(const Fields& fields) {
  Json out = Json::array();
  const Json* tools = fields.array("tools");
  for (size_t i = 0; tools && i < tools->size(); ++i) {
    const std::string at = fmt::format("tools[{}]", i);
    const Fields tool((*tools)[i], at);
    if (tool.text("type").value_or("function") != "function") tool.refuse("type", "must be \"function\": this server runs no tools of its own");
    if (tool.has("function")) {
      out.push_back((*tools)[i]);
      continue;
    }
    Json function = tool.json();
    function.erase("type");
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

class ResponseWriter : public AnswerWriter {
 public:
  ResponseWriter(ServicePtr service, const ChatJob& job, const std::string& request_id, const Json& body)
      : service_(std::move(service)), n_logprobs_(job.params.n_logprobs), id_("resp_" + request_id), created_(unix_seconds()), job_(job) {
    for (const char* name : {"instructions", "metadata", "tools", "tool_choice", "text", "reasoning", "user", "max_output_tokens", "previous_response_id"})
      echoed_[name] = body.contains(name) ? body[name] : Json();
    if (echoed_["tools"].is_null()) echoed_["tools"] = Json::array();
    if (echoed_["tool_choice"].is_null()) echoed_["tool_choice"] = "auto";
    if (echoed_["metadata"].is_null()) echoed_["metadata"] = Json::object();
    if (echoed_["text"].is_null()) echoed_["text"] = {{"format", {{"type", "text"}}}};
  }

  std::string whole(const std::vector<Answer>& answers, const Usage& usage) override { return dumped(response(answers.at(0), usage)); }

  std::string begin(const Usage&) override {
    const Json started = response_head("in_progress");
    std::string out = event("response.created", {{"response", started}});      // events are numbered in this order
    return out += event("response.in_progress", {{"response", started}});
  }

  std::string piece(const Answer& answer, const AnswerPiece& piece, const Usage&) override {
    std::string out;
    if (!piece.delta.reasoning.empty()) {
      out += open("reasoning", answer);
      out += event("response.reasoning_text.delta", {{"item_id", item_id_}, {"output_index", index_}, {"content_index", 0}, {"delta", piece.delta.reasoning}});
    }
    if (!piece.delta.content.empty()) {
      out += open("message", answer);
      out += event("response.output_text.delta", {{"item_id", item_id_}, {"output_index", index_}, {"content_index", 0}, {"delta", piece.delta.content}, {"logprobs", logprobs(piece.tokens)}});
    }
    for (const AnswerDelta::Call& call : piece.delta.calls) {
      out += open(answer.calls[size_t(call.index)].id, answer, call.index);
      if (!call.arguments.empty())
        out += event("response.function_call_arguments.delta", {{"item_id", item_id_}, {"output_index", index_}, {"delta", call.arguments}});
    }
    text_ += piece.delta.content;
    return out;
  }

  std::string finished(const Answer& answer, const Usage&) override {
    std::string out = open_.empty() ? open("message", answer) : "";
    return out + close(answer);
  }
  std::string end(const std::vector<Answer>& answers, const Usage& usage) override {
    const Answer& answer = answers.at(0);
    Json all = response_head(status(answer));
    all["output"] = done_;
    finish(all, answer, usage);
    return event(answer.finish == "length" ? "response.incomplete" : "response.completed", {{"response", all}});
  }
  std::string failed(const std::string& message) override {
    Json all = response_head("failed");
    all["error"] = {{"code", "server_error"}, {"message", message}};
    return event("response.failed", {{"response", all}});
  }

 private:
  static std::string status(const Answer& answer) { return answer.finish == "length" ? "incomplete" : "completed"; }
  Json logprobs(const std::vector<Sampled>& tokens) const {
    return n_logprobs_ < 0 ? Json::array() : logprob_entries(service_->tokenizer, tokens, n_logprobs_);
  }
  Json response_head(const std::string& state) const {
    Json out = {{"id", id_}, {"object", "response"}, {"created_at", created_}, {"status", state}, {"model", service_->name()}, {"output", Json::array()}, {"error", nullptr}, {"incomplete_details", nullptr},
                {"parallel_tool_calls", job_.parallel_tool_calls}, {"temperature", job_.params.temperature}, {"top_p", job_.params.top_p}, {"store", false}, {"truncation", "disabled"}, {"usage", nullptr}};
    out.update(echoed_);
    return out;
  }
  void finish(Json& out, const Answer& answer, const Usage& usage) const {
    if (answer.finish == "length") out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    out["usage"] = {{"input_tokens", usage.n_prompt},
                    {"input_tokens_details", {{"cached_tokens", usage.n_cached}}},
                    {"output_tokens", usage.n_generated},
                    {"output_tokens_details", {{"reasoning_tokens", usage.n_reasoning}}},
                    {"total_tokens", usage.n_prompt + usage.n_generated}};
  }
  Json reasoning_item(const std::string& id, const std::string& text, const char* state) const {
    Json content = Json::array();
    if (!text.empty()) content.push_back({{"type", "reasoning_text"}, {"text", text}});
    return {{"id", id}, {"type", "reasoning"}, {"summary", Json::array()}, {"content", std::move(content)}, {"status", state}};
  }
  Json text_part(const std::string& text, Json probs) const { return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", std::move(probs)}}; }
  Json message_item(const std::string& id, Json content, const char* state) const {
    return {{"id", id}, {"type", "message"}, {"role", "assistant"}, {"status", state}, {"content", std::move(content)}};
  }
  Json call_item(const ToolCall& call, const char* state) const {
    return {{"id", "fc_" + call.id.substr(std::min<size_t>(call.id.size(), 5))}, {"type", "function_call"}, {"call_id", call.id}, {"name", call.name}, {"arguments", call.arguments}, {"status", state}};
  }
  Json response(const Answer& answer, const Usage& usage) const {
    Json out = response_head(status(answer));
    Json& output = out["output"];
    const char* state = answer.finish == "length" ? "incomplete" : "completed";
    if (!answer.reasoning.empty()) output.push_back(reasoning_item(random_id("rs_"), answer.reasoning, state));
    if (!answer.content.empty() || answer.calls.empty()) output.push_back(message_item(random_id("msg_"), Json::array({text_part(answer.content, logprobs(answer.tokens))}), state));
    for (const ToolCall& call : answer.calls) output.push_back(call_item(call, state));
    finish(out, answer, usage);
    return out;
  }

  // Opens the item `key` when it is not the open one: "reasoning", "message", or the id of a call.
  std::string open(const std::string& key, const Answer& answer, int call = -1) {
    if (key == open_) return {};
    std::string out = open_.empty() ? "" : close(answer);
    open_ = key;
    call_ = call;
    index_++;
    text_.clear();
    Json item;
    if (key == "reasoning") item = reasoning_item(item_id_ = random_id("rs_"), "", "in_progress");
    else if (key == "message") item = message_item(item_id_ = random_id("msg_"), Json::array(), "in_progress");
    else {
      item = call_item({answer.calls[size_t(call)].id, answer.calls[size_t(call)].name, ""}, "in_progress");
      item_id_ = item["id"];
    }
    out += event("response.output_item.added", {{"output_index", index_}, {"item", item}});
    if (key == "message") out += event("response.content_part.added", {{"item_id", item_id_}, {"output_index", index_}, {"content_index", 0}, {"part", text_part("", Json::array())}});
    return out;
  }
  std::string close(const Answer& answer) {
    std::string out;
    Json item;
    if (open_ == "reasoning") {
      out += event("response.reasoning_text.done", {{"item_id", item_id_}, {"output_index", index_}, {"content_index", 0}, {"text", answer.reasoning}});
      item = reasoning_item(item_id_, answer.reasoning, "completed");
    } else if (open_ == "message") {
      const Json part = text_part(text_, n_logprobs_ < 0 ? Json::array() : logprobs(answer.tokens));
      out += event("response.output_text.done", {{"item_id", item_id_}, {"output_index", index_}, {"content_index", 0}, {"text", text_}, {"logprobs", part["logprobs"]}});
      out += event("response.content_part.done", {{"item_id", item_id_}, {"output_index", index_}, {"content_index", 0}, {"part", part}});
      item = message_item(item_id_, Json::array({part}), "completed");
    } else {
      const ToolCall& call = answer.calls[size_t(call_)];
      out += event("response.function_call_arguments.done", {{"item_id", item_id_}, {"output_index", index_}, {"name", call.name}, {"arguments", call.arguments}});
      item = call_item(call, "completed");
    }
    done_.push_back(item);
    return out + event("response.output_item.done", {{"output_index", index_}, {"item", item}});
  }
  std::string event(const std::string& type, const Json& fields) {
    Json json = {{"type", type}, {"sequence_number", n_events_++}};
    json.update(fields);
    return sse_event(type, json);
  }

  ServicePtr service_;
  int n_logprobs_;
  std::string id_;
  int64_t created_;
  ChatJob job_;
  Json echoed_ = Json::object(), done_ = Json::array();
  std::string open_, item_id_, text_;        // the open item
  int index_ = -1, call_ = -1, n_events_ = 0;
};

}  // namespace

ChatJob parse_response(const Json& given, const Service& service) {
  Json body = given;
  const Fields asked(given);
  if (asked.has("previous_response_id")) asked.refuse("previous_response_id", "responses are not stored here; send the whole conversation as input");
  if (asked.has("conversation")) asked.refuse("conversation", "conversations are not stored here; send the whole conversation as input");
  if (asked.has("prompt")) asked.refuse("prompt", "prompt templates are not stored here; send the text as input");
  if (asked.boolean("background").value_or(false)) asked.refuse("background", "is not supported; use stream");
  if (given.contains("tools")) body["tools"] = tools_of(asked);
  const Fields fields(body);
  ChatJob job;
  read_job(job, fields, service);
  if (job.params.max_tokens == 0) fields.refuse("max_output_tokens", "must be at least 1");
  if (const auto words = fields.text("instructions"); words && !words->empty()) job.messages.push_back({{"role", "system"}, {"content", *words}});
  const Json& input = fields.required("input", "a string or a list of items");
  if (input.is_string()) job.messages.push_back({{"role", "user"}, {"content", input}});
  else if (input.is_array() && !input.empty())
    for (size_t i = 0; i < input.size(); ++i) add_item(job.messages, input[i], fmt::format("input[{}]", i));
  else fields.refuse("input", "must be a string or a list of items");
  if (job.messages.empty()) fields.refuse("input", "holds no message");
  read_tools(job, fields);
  if (const auto text = fields.object("text"))
    if (const auto format = text->object("format")) job.constraint = read_response_format(*format);
  if (const auto reasoning = fields.object("reasoning"))
    if (const auto effort = reasoning->text("effort")) {
      job.template_variables["reasoning_effort"] = *effort;
      if (*effort == "none") job.template_variables["enable_thinking"] = false;
    }
  if (const auto variables = fields.object("chat_template_kwargs"))
    for (const auto& [name, value] : variables->json().items()) job.template_variables[name] = value;
  bool wants_logprobs = fields.has("top_logprobs");
  for (const std::string& item : fields.texts("include")) wants_logprobs = wants_logprobs || item == "message.output_text.logprobs";
  if (wants_logprobs) job.params.n_logprobs = read_top_logprobs(fields, "top_logprobs", service, 0);
  return job;
}

void handle_responses(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const Json body = body_of(request);
  const ChatJob job = parse_response(body, *service);
  std::vector<Prepared> prompts;
  prompts.push_back(prepare_chat(*service, job));
  answer_request(service, reply, std::move(prompts), job, std::make_unique<ResponseWriter>(named_for(service, job), job, request.id, body), openai_error);
}

}  // namespace ridge
