#include "server/api/conversation.h"

namespace ridge {
namespace {

constexpr size_t kMaxMessages = 65536, kMaxTools = 1024;

Json read_calls(const Json& calls, const std::string& path) {
  if (!calls.is_array()) refuse_field(path, "must be a list of tool calls");
  Json out = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    const Fields call(calls[i], at);
    const auto function = call.object("function");
    if (!function) refuse_field(at + ".function", "is missing: {\"name\", \"arguments\"}");
    const auto name = function->text("name");
    if (!name) refuse_field(at + ".function.name", "is missing");
    Json made = {{"type", "function"}, {"function", {{"name", *name}, {"arguments", function->json().value("arguments", Json::object())}}}};
    if (const auto id = call.text("id")) made["id"] = *id;
    out.push_back(std::move(made));
  }
  return out;
}

}  // namespace

std::string text_of(const Json& content, const std::string& path) {
  if (content.is_null()) return "";
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse_field(path, fmt::format("must be a string or a list of text parts, not {}", shown(content)));
  std::string out;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (i > 0) out += "\n";
    if (content[i].is_string()) {
      out += content[i].get<std::string>();
      continue;
    }
    const Fields part(content[i], at);
    const std::string type = part.text("type").value_or("text");
    if (type == "text" || type == "input_text" || type == "output_text") out += part.text("text").value_or("");
    else if (type == "refusal") out += part.text("refusal").value_or("");
    else if (type.find("image") != std::string::npos || type.find("audio") != std::string::npos || type.find("video") != std::string::npos || type.find("file") != std::string::npos ||
             type == "document")
      throw ApiError(400, fmt::format("{}: a part of type {}: this model takes text alone; leave the part out or describe it in words", at, shown(type)), at, "unsupported_content");
    else refuse_field(at + ".type", fmt::format("= {}: must be text", shown(type)));
  }
  return out;
}

Json read_messages(const Fields& fields, std::string_view name) {
  const Json& messages = fields.required(name, "a list of {\"role\", \"content\"}");
  if (!messages.is_array() || messages.empty()) fields.refuse(name, "must be a list of at least one {\"role\", \"content\"}");
  if (messages.size() > kMaxMessages) refuse_field(fields.path(name), fmt::format("has {} messages: at most {}", messages.size(), kMaxMessages));
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", fields.path(name), i);
    const Fields message(messages[i], at);
    const auto role = message.one_of("role", {"system", "developer", "user", "assistant", "tool", "function", "ipython", "model"});
    if (!role) refuse_field(at + ".role", "is missing: system, user, assistant or tool");
    const bool has_calls = *role == "assistant" && message.has("tool_calls") && !message.array("tool_calls")->empty();
    Json made = {{"role", *role}};
    const Json* content = message.find("content");
    if (!content && *role != "assistant") refuse_field(at + ".content", "is missing: a string");
    // An assistant that only called tools has the content null, which some templates ask about.
    made["content"] = content ? Json(text_of(*content, at + ".content")) : has_calls ? Json() : Json("");
    if (has_calls) made["tool_calls"] = read_calls(*message.find("tool_calls"), at + ".tool_calls");
    for (const char* extra : {"name", "tool_call_id"})
      if (const auto value = message.text(extra)) made[extra] = *value;
    for (const char* extra : {"reasoning_content", "reasoning"})
      if (const auto value = message.text(extra)) made["reasoning_content"] = *value;
    out.push_back(std::move(made));
  }
  return out;
}

void check_tool_name(const std::string& name, const std::string& path) {
  const bool good = !name.empty() && name.size() <= 64 && name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == std::string::npos;
  if (!good) throw ApiError(400, fmt::format("{} = {}: must be 1 to 64 letters, digits, _, - or .", path, shown(name)), path);
}

void read_tools(ChatJob& job, const Fields& fields) {
  for (const char* old : {"functions", "function_call"})
    if (fields.has(old)) fields.refuse(old, "is the old form; use tools and tool_choice");
  if (const Json* tools = fields.array("tools")) {
    if (tools->size() > kMaxTools) refuse_field(fields.path("tools"), fmt::format("has {} tools: at most {}", tools->size(), kMaxTools));
    for (size_t i = 0; i < tools->size(); ++i) {
      const std::string at = fmt::format("{}[{}]", fields.path("tools"), i);
      const Fields tool((*tools)[i], at);
      if (tool.text("type").value_or("function") != "function") tool.refuse("type", "must be \"function\"");
      const auto function = tool.object("function");
      if (!function) refuse_field(at + ".function", "is missing: {\"name\", \"description\", \"parameters\"}");
      check_tool_name(function->text("name").value_or(""), at + ".function.name");
      function->text("description");
      function->boolean("strict");
      const Json* parameters = function->find("parameters");
      if (parameters && !parameters->is_object()) function->refuse("parameters", "must be a JSON schema");
      Json made = (*tools)[i];
      made["type"] = "function";
      if (!parameters) made["function"]["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
      job.tools.push_back(std::move(made));
    }
  }
  if (const Json* choice = fields.find("tool_choice")) {
    if (choice->is_string()) {
      const std::string word = *fields.one_of("tool_choice", {"none", "auto", "required", "any"});
      job.tool_choice = word == "none" ? ToolChoice::none : word == "auto" ? ToolChoice::automatic : ToolChoice::required;
    } else {
      const Fields named(*choice, fields.path("tool_choice"));
      const auto function = named.object("function");
      const auto name = function ? function->text("name") : named.text("name");      // the Responses API has no inner object
      if (!name) refuse_field(fields.path("tool_choice"), "must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": ...}}");
      job.tool_choice = ToolChoice::named;
      job.tool_name = *name;
    }
  }
  job.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  if (job.tools.empty() && (job.tool_choice == ToolChoice::required || job.tool_choice == ToolChoice::named)) fields.refuse("tool_choice", "there are no tools to choose from");
  if (job.tool_choice == ToolChoice::named) {
    for (const Json& tool : job.tools)
      if (tool["function"]["name"] == job.tool_name) return;
    fields.refuse("tool_choice", "names a function that is not in tools");
  }
}

}  // namespace ridge
