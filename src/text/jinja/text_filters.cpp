// jinja2's filters over text, and tojson as transformers overrides it (no HTML escapes, non-ASCII kept).
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"

namespace ridge::jinja {

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string soft_escape(const Value& value) { return value.is_markup() ? value.text() : escape_html(to_text(value)); }

namespace {

template <std::string (*f)(std::string_view)>
Value mapped(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("filter", args, {});
  return runtime.text(f(to_text(v)), v.is_markup());
}

// A filter that is the str method of the same name on str(value).
template <Filter (*find)(std::string_view), const char* name>
Value by_method(Runtime& runtime, const Value& v, Args& args) {
  return find(name)(runtime, v.is_text() ? v : Value(to_text(v)), args);
}
constexpr char kStrip[] = "strip";

Value replace(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("replace", args, {"old", "new", "count"}, 2);
  Args plain{{Value(to_text(b[0])), Value(to_text(b[1]))}, {}};
  if (b.given(2)) plain.positional.push_back(b[2]);
  return find_text_method("replace")(runtime, Value(to_text(v)), plain);
}

Value join(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("join", args, {"d", "attribute"});
  const std::string separator = b.has(0) ? to_text(b[0]) : "";
  Value items = v;
  if (b.given(1)) {
    Args by{{}, {{"attribute", b[1]}}};
    items = find_filter("map")(runtime, v, by);
  }
  std::string out;
  bool more = false;
  for (const Value& item : runtime.iterate(items)) {
    if (std::exchange(more, true)) out += separator;
    runtime.spend(item.weight());
    out += to_text(item);
    runtime.check_text(out.size());
  }
  return runtime.text(std::move(out));
}

// jinja2's title: words begin after white space and -({[<.
std::string title_words(std::string_view text) {
  std::string out;
  bool begins = true, separator = false;
  for (const char32_t c : utf8::decode(text)) {
    const bool is_separator = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    std::string one;
    utf8::append(one, c);
    begins |= is_separator != separator;
    separator = is_separator;
    out += begins ? upper(one) : lower(one);
    begins = false;
  }
  return out;
}

Value indent(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("indent", args, {"width", "first", "blank"});
  if (!v.is_text()) {
    if (v.is_undefined()) throw Raised{v.undefined_message()};
    raise("unsupported operand type(s) for +=: '{}' and 'str'", v.type_name());
  }
  const int64_t width = b.has(0) && b[0].is_text() ? 0 : std::max<int64_t>(b.integer(0, 4), 0);
  runtime.check_text(static_cast<size_t>(width));
  const std::string by = b.has(0) && b[0].is_text() ? b[0].text() : std::string(static_cast<size_t>(width), ' ');
  std::string out;
  const std::string text = v.text() + "\n";
  const auto lines = split_lines(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? b.truth(1) : b.truth(2) || !lines[i].empty()) out += by;
    out += lines[i];
    runtime.check_text(out.size());
  }
  return runtime.text(std::move(out), v.is_markup());
}

Value truncate(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("truncate", args, {"length", "killwords", "end", "leeway"});
  const int64_t length = b.integer(0, 255), leeway = b.given(3) ? as_integer(b[3]) : 5;
  const std::string end = b.text(2, "...");
  if (length < n_characters(end)) raise("expected length >= {}, got {}", n_characters(end), length);
  if (leeway < 0) raise("expected leeway >= 0, got {}", leeway);
  if (!v.is_text() && (v.is_undefined() || runtime.length(v) <= length + leeway)) return v;
  if (!v.is_text()) raise("object of type '{}' cannot be truncated", v.type_name());
  const std::string& text = v.text();
  const int64_t n = n_characters(text);
  if (n <= leeway || n - leeway <= length) return v;
  std::string cut = text.substr(0, byte_offset(text, length - n_characters(end)));
  if (!b.truth(1)) cut = cut.substr(0, std::min(cut.rfind(' '), cut.size()));
  return runtime.text(cut + end, v.is_markup());
}

// One paragraph as textwrap.wrap breaks it with white space kept inside lines and dropped at their ends; hyphens end a chunk.
std::vector<std::u32string> wrap_line(const std::u32string& line, int64_t width, bool break_long, bool on_hyphens) {
  std::vector<std::u32string> chunks;
  for (size_t i = 0; i < line.size();) {
    size_t end = i;
    const bool space = is_space(line[i]);
    while (end < line.size() && is_space(line[end]) == space) {
      ++end;
      const bool hyphen = !space && on_hyphens && line[end - 1] == '-' && end - i >= 3 && is_alpha(line[end - 2]) && is_alpha(line[end - 3]);
      if (hyphen && end + 1 < line.size() && is_alpha(line[end]) && is_alpha(line[end + 1])) break;
    }
    chunks.push_back(line.substr(i, end - i));
    i = end;
  }
  std::vector<std::u32string> lines;
  size_t at = 0;
  while (at < chunks.size()) {
    std::vector<std::u32string> current;
    int64_t n = 0;
    if (is_space(chunks[at][0]) && !lines.empty()) ++at;
    while (at < chunks.size() && n + static_cast<int64_t>(chunks[at].size()) <= width) {
      n += static_cast<int64_t>(chunks[at].size());
      current.push_back(chunks[at++]);
    }
    if (at < chunks.size() && static_cast<int64_t>(chunks[at].size()) > width) {
      const int64_t room = break_long ? std::max<int64_t>(width - n, 1) : static_cast<int64_t>(chunks[at].size());
      if (break_long || current.empty()) {
        current.push_back(chunks[at].substr(0, static_cast<size_t>(room)));
        chunks[at] = chunks[at].substr(std::min(static_cast<size_t>(room), chunks[at].size()));
        if (chunks[at].empty()) ++at;
      }
    }
    if (!current.empty() && is_space(current.back()[0])) current.pop_back();
    if (current.empty()) continue;
    std::u32string whole;
    for (const auto& chunk : current) whole += chunk;
    lines.push_back(std::move(whole));
  }
  return lines;
}

Value wordwrap(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("wordwrap", args, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const int64_t width = b.integer(0, 79);
  if (width <= 0) raise("invalid width {} (must be > 0)", width);
  if (v.is_undefined()) throw Raised{v.undefined_message()};
  if (!v.is_text()) raise("'{}' object has no attribute 'splitlines'", v.type_name());
  const std::string separator = b.given(2) ? b.text(2, "") : "\n";
  const std::string& text = v.text();
  std::string out;
  bool more = false;
  for (const std::string_view line : split_lines(text)) {
    runtime.spend(static_cast<int64_t>(line.size()));
    if (std::exchange(more, true)) out += separator;
    bool more_here = false;
    for (const auto& part : wrap_line(utf8::decode(line), width, b.truth(1, true), b.truth(3, true))) {
      if (std::exchange(more_here, true)) out += separator;
      out += utf8::encode(part);
      runtime.check_text(out.size());
    }
  }
  return runtime.text(std::move(out));
}

Value wordcount(Runtime&, const Value& v, Args&) {
  int64_t n = 0;
  bool inside = false;
  for (const char32_t c : utf8::decode(to_text(v))) {
    n += is_word(c) && !inside;
    inside = is_word(c);
  }
  return n;
}

Value center(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("center", args, {"width"});
  Args width{{Value(b.integer(0, 80))}, {}};
  return find_text_method("center")(runtime, v.is_text() ? v : Value(to_text(v)), width);
}

Value format(Runtime& runtime, const Value& v, Args& args) {
  if (!args.positional.empty() && !args.keyword.empty()) raise("can't handle positional and keyword arguments at the same time");
  const Value text = v.is_text() ? v : Value(to_text(v));
  if (args.keyword.empty()) return format_percent(runtime, text, make_tuple(args.positional));
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : args.keyword) dict->set(key, value);
  return format_percent(runtime, text, make_dict(std::move(dict)));
}

std::string collapse_tags(std::string text) {
  for (const auto& [open, close] : {std::pair<std::string_view, std::string_view>{"<!--", "-->"}, {"<", ">"}}) {
    std::string kept;
    size_t at = 0;
    while (true) {
      const size_t begin = text.find(open, at);
      const size_t end = begin == std::string::npos ? begin : text.find(close, begin);
      if (end == std::string::npos) break;
      kept.append(text, at, begin - at);
      at = end + close.size();
    }
    text = kept + text.substr(at);
  }
  std::string out;
  bool space = false;
  for (const char32_t c : utf8::decode(text)) {
    if (is_space(c)) {
      space = !out.empty();
      continue;
    }
    if (std::exchange(space, false)) out += ' ';
    utf8::append(out, c);
  }
  for (const auto& [name, c] : {std::pair<std::string_view, std::string_view>{"&lt;", "<"}, {"&gt;", ">"}, {"&#34;", "\""}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}}) {
    for (size_t i = out.find(name); i != std::string::npos; i = out.find(name, i + c.size())) out.replace(i, name.size(), c);
  }
  return out;
}

std::string quote_url(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x80 && (std::isalnum(u) || std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query))) out += c;
    else if (query && c == ' ') out += '+';
    else out += fmt::format("%{:02X}", u);
  }
  return out;
}

Value urlencode(Runtime& runtime, const Value& v, Args&) {
  if (!v.is_dict() && !v.is_sequence()) return runtime.text(quote_url(to_text(v), false));
  std::string out;
  const auto append = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += quote_url(to_text(key), true) + "=" + quote_url(to_text(value), true);
    runtime.check_text(out.size());
  };
  if (v.is_dict()) {
    for (const auto& [key, value] : v.dict().items) append(key, value);
  } else {
    for (const Value& pair : runtime.iterate(v)) {
      const std::vector<Value> two = runtime.iterate(pair);
      if (two.size() != 2) raise("not enough values to unpack (expected 2, got {})", two.size());
      append(two[0], two[1]);
    }
  }
  return runtime.text(std::move(out));
}

Value xmlattr(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("xmlattr", args, {"autospace"});
  if (!v.is_dict()) raise("'{}' object has no attribute 'items'", v.type_name());
  std::string out;
  for (const auto& [key, value] : v.dict().items) {
    if (value.is_none() || value.is_undefined()) continue;
    const std::string name = to_text(key);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) raise("Invalid character in attribute name: {}", repr_of_text(name));
    out += fmt::format("{}{}=\"{}\"", out.empty() ? "" : " ", escape_html(name), soft_escape(value));
    runtime.check_text(out.size());
  }
  if (b.truth(0, true) && !out.empty()) out.insert(0, " ");
  return runtime.text(std::move(out));
}

Value filesizeformat(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("filesizeformat", args, {"binary"});
  Args otherwise{{Value()}, {}};
  const Value number = find_filter("float")(runtime, v, otherwise);
  if (number.is_none()) raise("could not convert {} to float", to_repr(v));
  const double bytes = number.number(), base = b.truth(0) ? 1024 : 1000;
  if (bytes == 1) return "1 Byte";
  if (bytes < base) return fmt::format("{:.0f} Bytes", std::trunc(bytes));
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base * base;
  size_t i = 0;
  while (i + 1 < kPrefixes.size() && bytes >= unit) unit *= base, ++i;
  const std::string prefix(1, b.truth(0) && i == 0 ? 'K' : kPrefixes[i]);
  return fmt::format("{:.1f} {}{}", base * bytes / unit, prefix, b.truth(0) ? "iB" : "B");
}

Value tojson(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = b.truth(0), .sort_keys = b.truth(3)};
  if (b.given(1)) {
    if (!b[1].is_text() && as_integer(b[1]) > 1024) raise("tojson: an indent of more than 1024");
    style.indent = b[1].is_text() ? b[1].text() : std::string(static_cast<size_t>(std::max<int64_t>(as_integer(b[1]), 0)), ' ');
    style.item_separator = ",";
  }
  if (b.given(2)) {
    const std::vector<Value> two = runtime.iterate(b[2]);
    if (two.size() != 2 || !two[0].is_text() || !two[1].is_text()) raise("tojson: separators must be two strings");
    style.item_separator = two[0].text();
    style.key_separator = two[1].text();
  }
  runtime.spend(v.weight());
  return runtime.text(to_json(v, style));
}

Value string(Runtime& runtime, const Value& v, Args& args) {
  const Bound b("string", args, {});
  runtime.spend(v.weight());
  return v.is_text() ? v : runtime.text(to_text(v));
}
Value safe(Runtime& runtime, const Value& v, Args&) { return runtime.text(to_text(v), true); }
Value escape(Runtime& runtime, const Value& v, Args&) { return runtime.text(soft_escape(v), true); }
Value force_escape(Runtime& runtime, const Value& v, Args&) { return runtime.text(escape_html(to_text(v)), true); }
Value striptags(Runtime& runtime, const Value& v, Args&) { return runtime.text(collapse_tags(to_text(v))); }

}  // namespace

Filter find_text_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"upper", mapped<upper>}, {"lower", mapped<lower>}, {"capitalize", mapped<capitalize>}, {"title", mapped<title_words>},
      {"trim", by_method<find_text_method, kStrip>}, {"replace", replace}, {"join", join}, {"indent", indent}, {"truncate", truncate},
      {"wordwrap", wordwrap}, {"wordcount", wordcount}, {"center", center}, {"format", format}, {"striptags", striptags}, {"urlencode", urlencode},
      {"xmlattr", xmlattr}, {"filesizeformat", filesizeformat}, {"tojson", tojson}, {"string", string}, {"safe", safe}, {"escape", escape}, {"e", escape},
      {"forceescape", force_escape}};
  const auto it = kFilters.find(name);
  return it == kFilters.end() ? nullptr : it->second;
}

}  // namespace ridge::jinja
