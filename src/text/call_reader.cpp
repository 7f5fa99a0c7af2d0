#include "text/call_reader.h"

#include <algorithm>

namespace ridge {

namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' || c == '/' || c == ':' || (c & 0x80); }
constexpr size_t kLongestName = 256;

void skip_space(std::string_view text, size_t& at) { while (at < text.size() && is_space(text[at])) ++at; }

// A JSON text with its quotes.
Reading read_text(std::string& out, std::string_view text, size_t& at) {
  if (at >= text.size()) return Reading::more;
  if (text[at] != '"') return Reading::bad;
  size_t end = at + 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  if (end >= text.size()) return Reading::more;
  const Json parsed = Json::parse(text.substr(at, end + 1 - at), nullptr, false);
  if (!parsed.is_string()) return Reading::bad;
  out = parsed.get<std::string>();
  at = end + 1;
  return Reading::good;
}

Reading read_value(std::string_view text, size_t& at) {
  JsonExtent extent;
  for (; at < text.size(); ++at) {
    if (!extent.take(text[at])) return extent.broken() ? Reading::bad : Reading::good;
    if (extent.ended()) return ++at, Reading::good;
  }
  return Reading::more;
}

// Arguments as calls have them: an object, or an object written as a text, or nothing.
std::optional<std::string> as_arguments(std::string_view text) {
  const Json value = Json::parse(text, nullptr, false);
  if (value.is_object()) return std::string(text);
  if (value.is_null()) return "{}";
  if (value.is_string()) {
    const std::string& inner = value.get_ref<const std::string&>();
    if (inner.empty()) return "{}";
    if (Json::parse(inner, nullptr, false).is_object()) return inner;
  }
  return std::nullopt;
}

}  // namespace

Reading read_marker(std::string_view text, size_t& at, std::string_view pattern) {
  size_t i = at, p = 0;
  if (pattern.find_first_not_of(" \n\r\t") == pattern.npos) {
    skip_space(text, i);
    return at = i, i < text.size() ? Reading::good : Reading::more;
  }
  skip_space(text, i);
  skip_space(pattern, p);
  while (p < pattern.size()) {
    if (is_space(pattern[p])) {
      skip_space(pattern, p);
      if (p == pattern.size()) break;
      skip_space(text, i);
      continue;
    }
    if (i >= text.size()) return Reading::more;
    if (text[i] != pattern[p]) return Reading::bad;
    ++i, ++p;
  }
  at = i;
  return Reading::good;
}

bool JsonExtent::take(char c) {
  if (ended_) return false;
  if (in_text_) {
    if (escaped_) escaped_ = false;
    else if (c == '\\') escaped_ = true;
    else if (c == '"') in_text_ = false, ended_ = nesting_.empty();
    return true;
  }
  if (!begun_ && is_space(c)) return true;
  if (plain_) {                              // a number or a word: over with whatever cannot belong to it
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '+' || c == '.') return true;
    ended_ = true;
    return false;
  }
  begun_ = true;
  if (c == '"') {
    in_text_ = true;
  } else if (c == '{' || c == '[') {
    nesting_ += c == '{' ? '}' : ']';
  } else if (c == '}' || c == ']') {
    if (nesting_.empty() || nesting_.back() != c) {
      broken_ = ended_ = true;
      return false;
    }
    nesting_.pop_back();
    ended_ = nesting_.empty();
  } else if (nesting_.empty()) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') {
      broken_ = ended_ = true;
      return false;
    }
    plain_ = true;
  }
  return true;
}

Reading read_json_head(CallHead& head, std::string_view text, size_t at, const AnswerFamily& family) {
  skip_space(text, at);
  if (at >= text.size()) return Reading::more;
  if (text[at] != '{') return Reading::bad;
  ++at;
  std::optional<std::string> name, arguments;
  while (true) {
    skip_space(text, at);
    if (at >= text.size()) return Reading::more;
    if (text[at] == '}') {
      ++at;
      break;
    }
    if (text[at] == ',') {
      ++at;
      continue;
    }
    std::string key;
    if (const Reading r = read_text(key, text, at); r != Reading::good) return r;
    skip_space(text, at);
    if (at >= text.size()) return Reading::more;
    if (text[at] != ':') return Reading::bad;
    ++at;
    skip_space(text, at);
    if (at >= text.size()) return Reading::more;
    if (family.name_is_key) {
      name = key;
      key = family.arguments_key;
    } else if (key == family.name_key || key == "name" || (key == "function" && text[at] == '"')) {
      name.emplace();
      if (const Reading r = read_text(*name, text, at); r != Reading::good) return r;
      if (name->empty()) return Reading::bad;
      continue;
    }
    if (key == family.arguments_key || key == "arguments" || key == "parameters") {
      if (name && text[at] == '{') {
        head = {.name = *name, .arguments = std::nullopt, .end = at};
        return Reading::good;
      }
      const size_t start = at;
      if (const Reading r = read_value(text, at); r != Reading::good) return r;
      arguments = as_arguments(text.substr(start, at - start));
      if (!arguments) return Reading::bad;
      continue;
    }
    if (const Reading r = read_value(text, at); r != Reading::good) return r;
  }
  if (!name) return Reading::bad;
  head = {.name = *name, .arguments = arguments.value_or("{}"), .end = at};
  return Reading::good;
}

Reading read_named_head(CallHead& head, std::string_view text, size_t at, const AnswerFamily& family) {
  skip_space(text, at);
  if (text.substr(at).starts_with(family.name_prefix)) at += family.name_prefix.size();
  else if (family.name_prefix.starts_with(text.substr(at))) return Reading::more;
  size_t end = at;
  while (end < text.size() && end - at <= kLongestName && is_name(text[end])) ++end;
  if (end >= text.size()) return Reading::more;
  std::string name(text.substr(at, end - at));
  if (name.empty() || name.size() > kLongestName) return Reading::bad;
  if (family.numbered) {                     // NAME:3
    const size_t colon = name.rfind(':');
    if (colon != std::string::npos && colon > 0 && std::all_of(name.begin() + static_cast<ptrdiff_t>(colon) + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; })) name.resize(colon);
  }
  size_t i = end;
  if (!family.name_end.empty()) {
    // Between the name and its end may stand what we do not need: an index, an id.
    const std::string_view sign = std::string_view(family.name_end).substr(family.name_end.find_last_of(" \"") == std::string::npos || family.form != CallForm::tags ? 0 : family.name_end.find_last_of('"') + 1);
    const Reading exact = read_marker(text, i, family.name_end);
    if (exact == Reading::more) return exact;
    if (exact == Reading::bad) {
      const bool loose = family.name == "kimi_k3" || family.name == "mistral_call_id";
      const size_t found = loose ? text.find(sign, end) : std::string_view::npos;
      if (!loose) return Reading::bad;
      if (found == text.npos) return text.size() - end > 128 ? Reading::bad : Reading::more;
      if (found - end > 128) return Reading::bad;
      i = found + sign.size();
    }
  }
  head = {.name = std::move(name), .arguments = std::nullopt, .end = i};
  return Reading::good;
}

namespace {

// Python's literals as JSON; `at` behind the value.
Reading read_python_value(Json& out, std::string_view text, size_t& at, int depth) {
  skip_space(text, at);
  if (at >= text.size()) return Reading::more;
  if (depth > 32) return Reading::bad;
  const char c = text[at];
  if (c == '"' || c == '\'') {
    std::string value;
    size_t i = at + 1;
    while (true) {
      if (i >= text.size()) return Reading::more;
      if (text[i] == c) break;
      if (text[i] != '\\') {
        value += text[i++];
        continue;
      }
      if (i + 1 >= text.size()) return Reading::more;
      const char e = text[i + 1];
      i += 2;
      switch (e) {
        case 'n': value += '\n'; break;
        case 't': value += '\t'; break;
        case 'r': value += '\r'; break;
        case 'b': value += '\b'; break;
        case 'f': value += '\f'; break;
        case 'u': {
          if (i + 4 > text.size()) return Reading::more;
          const Json unit = Json::parse("\"\\u" + std::string(text.substr(i, 4)) + "\"", nullptr, false);
          if (!unit.is_string()) return Reading::bad;
          value += unit.get<std::string>();
          i += 4;
          break;
        }
        default: value += e;
      }
    }
    out = value;
    at = i + 1;
    return Reading::good;
  }
  if (c == '[' || c == '(' || c == '{') {
    const char end = c == '[' ? ']' : c == '(' ? ')' : '}';
    out = c == '{' ? Json::object() : Json::array();
    for (++at;;) {
      skip_space(text, at);
      if (at >= text.size()) return Reading::more;
      if (text[at] == end) return ++at, Reading::good;
      if (text[at] == ',') {
        ++at;
        continue;
      }
      Json item;
      if (const Reading r = read_python_value(item, text, at, depth + 1); r != Reading::good) return r;
      if (c != '{') {
        out.push_back(std::move(item));
        continue;
      }
      if (!item.is_string()) return Reading::bad;
      skip_space(text, at);
      if (at >= text.size()) return Reading::more;
      if (text[at] != ':') return Reading::bad;
      ++at;
      Json value;
      if (const Reading r = read_python_value(value, text, at, depth + 1); r != Reading::good) return r;
      out[item.get<std::string>()] = std::move(value);
    }
  }
  size_t end = at;
  while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '-' || text[end] == '+' || text[end] == '.')) ++end;
  if (end >= text.size()) return Reading::more;
  const std::string word(text.substr(at, end - at));
  if (word == "True" || word == "true") out = true;
  else if (word == "False" || word == "false") out = false;
  else if (word == "None" || word == "null") out = nullptr;
  else out = Json::parse(word, nullptr, false);
  if (out.is_discarded()) return Reading::bad;
  at = end;
  return Reading::good;
}

Reading read_brace_value(Json& out, std::string_view text, size_t& at, const std::string& quote, int depth) {
  skip_space(text, at);
  if (depth > 32) return Reading::bad;
  const std::string_view left = text.substr(at);
  if (left.starts_with(quote)) {
    const size_t end = left.find(quote, quote.size());
    if (end == left.npos) return Reading::more;
    out = std::string(left.substr(quote.size(), end - quote.size()));
    at += end + quote.size();
    return Reading::good;
  }
  if (quote.starts_with(left)) return Reading::more;
  if (left[0] != '{' && left[0] != '[') {
    size_t end = 0;
    while (end < left.size() && left[end] != ',' && left[end] != '}' && left[end] != ']') ++end;
    if (end == left.size()) return Reading::more;
    std::string word(left.substr(0, end));
    while (!word.empty() && is_space(word.back())) word.pop_back();
    out = Json::parse(word, nullptr, false);
    if (out.is_discarded()) out = word;      // a text whose quotes were forgotten
    at += end;
    return Reading::good;
  }
  const bool object = left[0] == '{';
  out = object ? Json::object() : Json::array();
  for (++at;;) {
    skip_space(text, at);
    if (at >= text.size()) return Reading::more;
    if (text[at] == (object ? '}' : ']')) return ++at, Reading::good;
    if (text[at] == ',') {
      ++at;
      continue;
    }
    std::string key;
    if (object) {
      const size_t colon = text.find(':', at);
      if (colon == text.npos) return text.size() - at > kLongestName ? Reading::bad : Reading::more;
      key = text.substr(at, colon - at);
      if (key.find_first_of("{}[]<") != key.npos) return Reading::bad;
      while (!key.empty() && is_space(key.back())) key.pop_back();
      at = colon + 1;
    }
    Json value;
    if (const Reading r = read_brace_value(value, text, at, quote, depth + 1); r != Reading::good) return r;
    if (object) out[key] = std::move(value);
    else out.push_back(std::move(value));
  }
}

}  // namespace

Reading read_python_calls(std::vector<WholeCall>& calls, std::string_view text, size_t& at) {
  size_t i = at;
  skip_space(text, i);
  if (i >= text.size()) return Reading::more;
  if (text[i] != '[') return Reading::bad;
  std::vector<WholeCall> out;
  for (++i;;) {
    skip_space(text, i);
    if (i >= text.size()) return Reading::more;
    if (text[i] == ']') break;
    if (text[i] == ',') {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && is_name(text[end])) ++end;
    if (end >= text.size()) return Reading::more;
    if (text[end] != '(' || end == i) return Reading::bad;
    WholeCall call{.name = std::string(text.substr(i, end - i)), .arguments = {}};
    Json arguments = Json::object();
    for (i = end + 1;;) {
      skip_space(text, i);
      if (i >= text.size()) return Reading::more;
      if (text[i] == ')') break;
      if (text[i] == ',') {
        ++i;
        continue;
      }
      size_t key_end = i;
      while (key_end < text.size() && is_name(text[key_end])) ++key_end;
      const std::string key(text.substr(i, key_end - i));
      skip_space(text, key_end);
      if (key_end >= text.size()) return Reading::more;
      if (text[key_end] != '=' || key.empty()) return Reading::bad;
      i = key_end + 1;
      Json value;
      if (const Reading r = read_python_value(value, text, i, 0); r != Reading::good) return r;
      arguments[key] = std::move(value);
    }
    ++i;
    call.arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
    out.push_back(std::move(call));
  }
  if (out.empty()) return Reading::bad;
  calls = std::move(out);
  at = i + 1;
  return Reading::good;
}

Reading read_brace_call(WholeCall& call, std::string_view text, size_t& at, const std::string& quote) {
  size_t end = at;
  while (end < text.size() && is_name(text[end])) ++end;
  if (end >= text.size()) return Reading::more;
  if (text[end] != '{' || end == at) return Reading::bad;
  size_t i = end;
  Json arguments;
  if (const Reading r = read_brace_value(arguments, text, i, quote, 0); r != Reading::good) return r;
  call = {.name = std::string(text.substr(at, end - at)), .arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace)};
  at = i;
  return Reading::good;
}

}  // namespace ridge
