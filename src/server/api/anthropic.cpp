// /v1/messages and /v1/messages/count_tokens. Content is a list of blocks (thinking, text, tool_use); a stream opens, fills and closes them one after another.
#include "server/api/conversation.h"
#include "server/api/handlers.h"
#include "server/api/job_fields.h"
#include "server/api/shapes.h"

namespace ridge {
namespace {

std::string tool_use_id(const std::string& call_id) { return call_id.starts_with("call_") ? "toolu_" + call_id.substr(5) : call_id; }

// A call's arguments as the object that Anthropic gives; what is no object (a broken call) stays visible.
Json input_of(const std::string& arguments) {
  try {
    Json parsed = parse_json(arguments.empty() ? "{}" : arguments, "arguments");
    if (parsed.is_object()) return parsed;
  } catch (const Error&) {
  }
  return {{"raw", arguments}};
}

void add_user(Json& out, const Json& content, const std::string& at) {
  if (!content.is_array()) {
    out.push_back({{"role", "user"}, {"content", text_of(content, at)}});
    return;
  }
  Json rest = Json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string path = fmt::format("{}[{}]", at, i);
    const Fields block(content[i], path);
    if (block.text("type").value_or("") == "tool_result") {
      const Json* result = block.find("content");
      out.push_back({{"role", "tool"}, {"tool_call_id", block.text("tool_use_id").value_or("")}, {"content", result ? text_of(*result, path + ".content") : ""}});
    } else {
      rest.push_back(content[i]);
    }
  }
  if (!rest.empty()) out.push_back({{"role", "user"}, {"content", text_of(rest, at)}});
}

void add_assistant(Json& out, const Json& content, const std::string& at) {
  Json message = {{"role", "assistant"}, {"content", ""}};
  if (!content.is_array()) {
    message["content"] = text_of(content, at);
  } else {
    Json texts = Json::array(), calls = Json::array();
    std::string thought;
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string path = fmt::format("{}[{}]", at, i);
      const Fields block(content[i], path);
      const std::string type = block.text("type").value_or("text");
      if (type == "tool_use") {
        const auto name = block.text("name");
        if (!name) refuse_field(path + ".name", "is missing");
        const Json* input = block.find("input");
        calls.push_back({{"type", "function"}, {"id", block.text("id").value_or("")}, {"function", {{"name", *name}, {"arguments", input ? *input : Json::object()}}}});
      } else if (type == "thinking") {
        thought += block.text("thinking").value_or("");
      } else if (type != "redacted_thinking") {
        texts.push_back(content[i]);
      }
    }
    message["content"] = texts.empty() && !calls.empty() ? Json() : Json(text_of(texts, at));
    if (!thought.empty()) message["reasoning_content"] = thought;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
  }
  out.push_back(std::move(message));
}

Json messages_of(const Fields& fields) {
  Json out = Json::array();
  if (const Json* system = fields.find("system"))
    if (std::string text = text_of(*system, "system"); !text.empty()) out.push_back({{"role", "system"}, {"content", std::move(text)}});
  const Json& messages = fields.required("messages", "a list of {\"role\", \"content\"}");
  if (!messages.is_array() || messages.empty()) fields.refuse("messages", "must be a list of at least one {\"role\", \"content\"}");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string at = fmt::format("messages[{}]", i);
    const Fields message(messages[i], at);
    const std::string role = message.one_of("role", {"user", "assistant", "system"}).value_or("");
    if (role.empty()) refuse_field(at + ".role", "is missing: user or assistant");
    const Json& content = message.required("content", "a string or a list of blocks");
    if (role == "user") add_user(out, content, at + ".content");
    else if (role == "assistant") add_assistant(out, content, at + ".content");
    else out.push_back({{"role", "system"}, {"content", text_of(content, at + ".content")}});
  }
  return out;
}

void read_anthropic_tools(ChatJob& job, const Fields& fields) {
  if (const Json* tools = fields.array("tools"))
    for (size_t i = 0; i < tools->size(); ++i) {
      const std::string at = fmt::format("tools[{}]", i);
      const Fields tool((*tools)[i], at);
      if (tool.text("type").value_or("custom") != "custom") tool.refuse("type", "is run by Anthropic's own servers; here a tool has a name and an input_schema");
      Json function = {{"name", tool.text("name").value_or("")}};
      check_tool_name(function["name"], at + ".name");
      if (const auto words = tool.text("description")) function["description"] = *words;
      const auto schema = tool.object("input_schema");
      function["parameters"] = schema ? schema->json() : Json{{"type", "object"}, {"properties", Json::object()}};
      if (tool.boolean("strict").value_or(false)) function["strict"] = true;
      job.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  const auto choice = fields.object("tool_choice");
  if (!choice) return;
  const std::string type = choice->one_of("type", {"auto", "any", "tool", "none"}).value_or("auto");
  job.parallel_tool_calls = !choice->boolean("disable_parallel_tool_use").value_or(false);
  job.tool_choice = type == "auto" ? ToolChoice::automatic : type == "any" ? ToolChoice::required : type == "tool" ? ToolChoice::named : ToolChoice::none;
  if (job.tools.empty() && (type == "any" || type == "tool")) fields.refuse("tool_choice", "there are no tools to choose from");
  if (type != "tool") return;
  job.tool_name = choice->text("name").value_or("");
  for (const Json& tool : job.tools)
    if (tool["function"]["name"] == job.tool_name) return;
  fields.refuse("tool_choice", "names a tool that is not in tools");
}

class MessageWriter : public AnswerWriter {
 public:
  MessageWriter(ServicePtr service, const std::string& request_id) : service_(std::move(service)), id_("msg_" + request_id) {}

  std::string whole(const std::vector<Answer>& answers, const Usage& usage) override {
    const Answer& answer = answers.at(0);
    Json content = Json::array();
    if (!answer.reasoning.empty()) content.push_back({{"type", "thinking"}, {"thinking", answer.reasoning}, {"signature", ""}});
    if (!answer.content.empty() || answer.calls.empty()) content.push_back({{"type", "text"}, {"text", answer.content}});
    for (const ToolCall& call : answer.calls) content.push_back({{"type", "tool_use"}, {"id", tool_use_id(call.id)}, {"name", call.name}, {"input", input_of(call.arguments)}});
    return dumped(message(std::move(content), stop_reason(answer), stop_sequence(answer), usage));
  }

  std::string begin(const Usage& usage) override {
    Usage so_far = usage;
    so_far.n_generated = 0;
    return sse_event("message_start", {{"type", "message_start"}, {"message", message(Json::array(), nullptr, nullptr, so_far)}}) + sse_event("ping", {{"type", "ping"}});
  }

  std::string piece(const Answer& answer, const AnswerPiece& piece, const Usage&) override {
    std::string out;
    const AnswerDelta& delta = piece.delta;
    if (!delta.reasoning.empty()) out += open("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}) + filled({{"type", "thinking_delta"}, {"thinking", delta.reasoning}});
    if (!delta.content.empty()) out += open("text", {{"type", "text"}, {"text", ""}}) + filled({{"type", "text_delta"}, {"text", delta.content}});
    for (const AnswerDelta::Call& call : delta.calls) {
      const ToolCall& whole = answer.calls[size_t(call.index)];
      out += open(whole.id, {{"type", "tool_use"}, {"id", tool_use_id(whole.id)}, {"name", whole.name}, {"input", Json::object()}});
      if (!call.arguments.empty()) out += filled({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
    }
    return out;
  }

  std::string finished(const Answer& answer, const Usage& usage) override {
    std::string out = block_ < 0 ? open("text", {{"type", "text"}, {"text", ""}}) : "";
    out += close();
    return out + sse_event("message_delta", {{"type", "message_delta"},
                                             {"delta", {{"stop_reason", stop_reason(answer)}, {"stop_sequence", stop_sequence(answer)}}},
                                             {"usage", usage_of(usage)}});
  }
  std::string end(const std::vector<Answer>&, const Usage&) override { return sse_event("message_stop", {{"type", "message_stop"}}); }
  std::string failed(const std::string& message) override {
    return sse_event("error", {{"type", "error"}, {"error", {{"type", "api_error"}, {"message", message}}}});
  }

 private:
  static Json usage_of(const Usage& usage) {
    return {{"input_tokens", usage.n_prompt - usage.n_cached}, {"cache_creation_input_tokens", 0}, {"cache_read_input_tokens", usage.n_cached}, {"output_tokens", usage.n_generated}};
  }
  static Json stop_reason(const Answer& answer) {
    if (!answer.stop.empty()) return "stop_sequence";
    return answer.finish == "length" ? "max_tokens" : answer.finish == "tool_calls" ? "tool_use" : "end_turn";
  }
  static Json stop_sequence(const Answer& answer) { return answer.stop.empty() ? Json() : Json(answer.stop); }
  Json message(Json content, Json stop, Json sequence, const Usage& usage) const {
    return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", service_->name()}, {"content", std::move(content)}, {"stop_reason", std::move(stop)},
            {"stop_sequence", std::move(sequence)}, {"usage", usage_of(usage)}};
  }
  std::string close() { return sse_event("content_block_stop", {{"type", "content_block_stop"}, {"index", block_}}); }
  // The block `key`, opened when another one is.
  std::string open(const std::string& key, const Json& block) {
    if (key == open_) return {};
    std::string out = block_ >= 0 ? close() : "";
    open_ = key;
    return out + sse_event("content_block_start", {{"type", "content_block_start"}, {"index", ++block_}, {"content_block", block}});
  }
  std::string filled(const Json& delta) const { return sse_event("content_block_delta", {{"type", "content_block_delta"}, {"index", block_}, {"delta", delta}}); }

  ServicePtr service_;
  std::string id_, open_;
  int block_ = -1;
};

}  // namespace

ChatJob parse_anthropic(const Json& body, const Service& service, bool counting) {
  const Fields fields(body);
  ChatJob job;
  read_job(job, fields, service);
  if (!counting) fields.required("max_tokens", "the most tokens that the answer may have");
  if (!counting && job.params.max_tokens == 0) fields.refuse("max_tokens", "must be at least 1");
  if (job.best_of > 1) fields.refuse(job.n > 1 ? "n" : "best_of", "is not part of this API: a message is one answer");
  job.messages = messages_of(fields);
  read_anthropic_tools(job, fields);
  if (const auto metadata = fields.object("metadata"); metadata && job.user.empty()) job.user = metadata->text("user_id").value_or("");
  if (const auto thinking = fields.object("thinking")) {
    const std::string type = thinking->one_of("type", {"enabled", "disabled", "adaptive"}).value_or("enabled");
    job.template_variables["enable_thinking"] = type != "disabled";
    if (const auto budget = thinking->integer("budget_tokens", 0, 1 << 28)) job.thinking_budget = int(*budget);
  }
  if (const auto variables = fields.object("chat_template_kwargs"))
    for (const auto& [name, value] : variables->json().items()) job.template_variables[name] = value;
  const auto output = fields.object("output_config");
  const auto format = output ? output->object("format") : fields.object("output_format");
  if (format) job.constraint = read_response_format(*format);
  job.continue_final_message = job.messages.back()["role"] == "assistant" && !job.messages.back().contains("tool_calls");
  job.add_generation_prompt = !job.continue_final_message;
  return job;
}

void handle_messages(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const ChatJob job = parse_anthropic(body_of(request), *service);
  std::vector<Prepared> prompts;
  prompts.push_back(prepare_chat(*service, job));
  answer_request(service, reply, std::move(prompts), job, std::make_unique<MessageWriter>(named_for(service, job), request.id), anthropic_error);
}

void handle_count_tokens(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const ChatJob job = parse_anthropic(body_of(request), *service, true);
  send_json(reply, {{"input_tokens", service->tokenizer.encode(render_chat(*service, job)).size()}});
}

}  // namespace ridge
