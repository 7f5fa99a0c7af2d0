// Calls whose arguments are tags around raw text: keys and values become JSON as they come.
#include "base/json_text.h"
#include "text/stream_parser.h"

namespace ridge {

namespace {

// What opens a value after its key: behind the last attribute, or all of it.
std::string_view value_opening(const AnswerFamily& family) {
  const std::string_view begin = trimmed(family.value_begin);
  const size_t quote = begin.rfind('"');
  return quote == begin.npos ? begin : begin.substr(quote + 1);
}

}  // namespace

StreamParser::Type StreamParser::type_of(const std::string& key) const {
  if (!tools_.is_array()) return Type::unknown;
  for (const Json& tool : tools_) {
    const Json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || function.value("name", Json()) != call_name_) continue;
    const Json parameters = function.value("parameters", Json::object());
    if (!parameters.is_object() || !parameters.contains("properties") || !parameters["properties"].is_object() || !parameters["properties"].contains(key)) return Type::unknown;
    const Json& schema = parameters["properties"][key];
    if (!schema.is_object()) return Type::unknown;
    if (schema.value("type", Json()) == "string") return Type::text;
    if (schema.value("type", Json()).is_string()) return Type::other;
    return Type::unknown;
  }
  return Type::unknown;
}

bool StreamParser::step_tags() {
  while (!pending_.empty()) {
    size_t at = 0;
    const Reading end = read_marker(pending_, at, family_.call_end);
    if (end == Reading::good) {
      give_arguments(first_key_ ? "{}" : "}");
      pending_.erase(0, at);
      after_call();
      return true;
    }
    at = 0;
    const Reading key = read_marker(pending_, at, family_.key_begin);
    if ((end == Reading::more || key == Reading::more) && !final_) return false;
    if (key != Reading::good) {
      pending_.erase(0, 1);
      continue;
    }
    const std::string_view closes = trimmed(family_.key_end), opens = value_opening(family_);
    const size_t key_end = pending_.find(closes, at);
    if (key_end == std::string::npos) return false;
    size_t value = key_end + closes.size();
    std::string_view attributes;
    if (!opens.empty()) {
      const size_t open = pending_.find(opens, value);
      if (open == std::string::npos) return false;
      attributes = std::string_view(pending_).substr(value, open - value);
      value = open + opens.size();
    }
    key_ = trimmed(std::string_view(pending_).substr(at, key_end - at));
    type_ = type_of(key_);
    if (attributes.find("string=\"true\"") != attributes.npos || attributes.find("type=\"string\"") != attributes.npos) type_ = Type::text;
    else if (attributes.find("string=\"false\"") != attributes.npos || attributes.find("type=\"") != attributes.npos) type_ = Type::other;
    pending_.erase(0, value);
    give_arguments((first_key_ ? "{" : ", ") + json_quoted(key_) + ": ");
    first_key_ = false;
    value_begun_ = false;
    value_.clear();
    state_ = State::value;
    return true;
  }
  return false;
}

bool StreamParser::step_value() {
  const std::string_view end = trimmed(family_.value_end);
  const bool lines = family_.value_end.starts_with('\n');            // a value stands on lines of its own
  const bool streams = type_ == Type::text && family_.name != "minicpm";     // which may wrap its values
  if (!value_begun_) {
    value_begun_ = true;
    if (streams) give_arguments("\"");
    if (lines && pending_[0] == '\n') {
      pending_.erase(0, 1);
      return true;
    }
  }
  const size_t found = pending_.find(end);
  if (found == std::string::npos) {
    size_t keep = final_ ? 0 : overlap(pending_, end);
    if (lines && keep < pending_.size() && pending_[pending_.size() - keep - 1] == '\n') ++keep;
    const std::string_view text = std::string_view(pending_).substr(0, pending_.size() - keep);
    if (streams) give_arguments(json_escaped(text));
    else value_ += text;
    pending_.erase(0, pending_.size() - keep);
    return false;
  }
  std::string text = pending_.substr(0, found);
  if (lines && text.ends_with('\n')) text.pop_back();
  size_t at = found + end.size();
  if (!family_.closing_key.empty()) {
    const size_t close = pending_.find(family_.closing_key, at);
    if (close == std::string::npos && !final_) return false;
    if (close != std::string::npos) at = close + family_.closing_key.size();
  }
  if (streams) give_arguments(json_escaped(text) + '"');
  else end_value(value_ + text);
  pending_.erase(0, at);
  state_ = State::tags;
  return true;
}

void StreamParser::end_value(std::string text) {
  if (text.starts_with("<![CDATA[") && text.ends_with("]]>")) text = text.substr(9, text.size() - 12);
  if (type_ != Type::text) {
    const Json value = Json::parse(text, nullptr, false);
    if (!value.is_discarded() && !(type_ == Type::unknown && value.is_string())) return give_arguments(trimmed(text));
    const std::string word(trimmed(text));
    if (word == "True" || word == "False" || word == "None") return give_arguments(word == "True" ? "true" : word == "False" ? "false" : "null");
  }
  give_arguments(json_quoted(text));
}

}  // namespace ridge
