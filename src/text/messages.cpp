// Conversations as templates can take them. The history comes from clients: calls whose arguments are no JSON, without ids, with nulls where templates want text.
#include <algorithm>

#include "text/answer_parser.h"

namespace ridge {

namespace {

bool mentions(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// A template that joins arguments to text with + wants text; every other takes an object, and those that test for text take both.
bool wants_text(std::string_view source) {
  for (std::string_view form : {"['function']['arguments'] }}", "['function']['arguments'] + ", ".function.arguments + ", "['arguments'] + ", "tool_call.arguments + ", "['function']['arguments'] -}}"}) {
    if (mentions(source, form)) return !mentions(source, "arguments is string") && !mentions(source, "arguments'] is string") && !mentions(source, "arguments is mapping");
  }
  return false;
}

// Some templates refuse ids that are not nine letters and digits.
bool wants_short_ids(std::string_view source) { return mentions(source, "id|length != 9") || mentions(source, "id | length != 9"); }

std::string short_id(const std::string& id) {
  std::string out;
  for (char c : id) if (std::isalnum(static_cast<unsigned char>(c))) out += c;
  if (out.size() > 9) out = out.substr(out.size() - 9);
  return std::string(9 - out.size(), '0') + out;
}

Json arguments_of(const Json& given, bool as_text) {
  Json value = given;
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    Json parsed = Json::parse(text.empty() ? "{}" : text, nullptr, false);
    // What is no object is kept where the model can see what it wrote.
    value = parsed.is_object() ? std::move(parsed) : Json{{"_raw", text}};
  } else if (value.is_null()) {
    value = Json::object();
  } else if (!value.is_object()) {
    value = Json{{"_raw", value.dump()}};
  }
  return as_text ? Json(value.dump(-1, ' ', false, Json::error_handler_t::replace)) : value;
}

}  // namespace

Json normalize_messages(const Json& messages, std::string_view source) {
  if (!messages.is_array()) return messages;
  const bool as_text = wants_text(source), nine = wants_short_ids(source);
  Json out = Json::array();
  int n_calls = 0;
  for (Json message : messages) {
    if (!message.is_object()) {
      out.push_back(std::move(message));
      continue;
    }
    if (message.contains("tool_calls") && (!message["tool_calls"].is_array() || message["tool_calls"].empty())) message.erase("tool_calls");
    if (message.contains("tool_calls")) {
      Json calls = Json::array();
      for (const Json& given : message["tool_calls"]) {
        if (!given.is_object()) continue;
        const Json& function = given.contains("function") && given["function"].is_object() ? given["function"] : given;
        const Json name = function.value("name", Json());
        std::string id = given.contains("id") && given["id"].is_string() ? given["id"].get<std::string>() : "call_" + std::to_string(n_calls);
        ++n_calls;
        calls.push_back({{"id", nine ? short_id(id) : id}, {"type", "function"}, {"function", {{"name", name.is_string() ? name : Json("unknown")}, {"arguments", arguments_of(function.value("arguments", Json()), as_text)}}}});
      }
      if (calls.empty()) message.erase("tool_calls");
      else message["tool_calls"] = std::move(calls);
    }
    if (nine && message.contains("tool_call_id") && message["tool_call_id"].is_string()) message["tool_call_id"] = short_id(message["tool_call_id"]);
    // Templates add content to text: null becomes the empty text.
    if (!message.contains("content") || message["content"].is_null()) message["content"] = "";
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace ridge
