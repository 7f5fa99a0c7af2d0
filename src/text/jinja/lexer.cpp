// A hand-written scanner in two states: outside tags (text up to the next tag) and inside one (names, numbers, strings, operators).
#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/jinja/characters.h"

namespace ridge::jinja {
namespace {

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

// \r\n and \r become \n, and one newline at the very end goes.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return utf8::is_valid(out) ? out : utf8::replace_invalid(out);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) scan_outside();
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string source_;
  size_t at_ = 0;
  size_t counted_to_ = 0;
  int line_ = 1;
  bool line_starting_ = true;       // the text that follows begins a line (the last tag ate a newline)
  std::vector<Token> tokens_;

  int line() {
    line_ += static_cast<int>(std::count(source_.begin() + counted_to_, source_.begin() + at_, '\n'));
    counted_to_ = at_;
    return line_;
  }
  [[noreturn]] void fail(std::string message) { throw SyntaxError{line(), std::move(message)}; }
  void add(TokenType type, std::string_view text) { tokens_.push_back({type, line(), std::string(text)}); }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool at(std::string_view text) const { return rest().starts_with(text); }

  void skip_space() {
    while (at_ < source_.size()) {
      const auto d = utf8::decode_one(rest());
      if (!is_space(d.c)) return;
      at_ += d.n_bytes;
    }
  }

  // Text before a tag, cut as the tag's sign says.
  void add_data(std::string_view text, char sign, bool may_lstrip) {
    if (sign == '-') {
      text = strip(text, Side::kRight);
    } else if (sign != '+' && may_lstrip) {
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((begin > 0 || line_starting_) && strip(text.substr(begin), Side::kRight).empty()) text = text.substr(0, begin);
    }
    if (!text.empty()) add(TokenType::kData, text);
  }

  char sign_at(size_t i) const { return i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i] : 0; }

  // After the closing delimiter: -} eats white space, a plain block or comment end one newline.
  void finish_tag(char sign, bool trims_newline) {
    if (sign == '-') {
      const size_t before = at_;
      skip_space();
      line_starting_ = at_ > before && source_[at_ - 1] == '\n';
    } else if (sign == 0 && trims_newline && at("\n")) {
      ++at_;
      line_starting_ = true;
    } else {
      line_starting_ = false;
    }
  }

  void scan_outside() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        add(TokenType::kData, rest());
        at_ = source_.size();
        return;
      }
      const char kind = source_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1], sign = sign_at(tag + 2);
    add_data(std::string_view(source_).substr(at_, tag - at_), sign, kind != '{');
    at_ = tag + 2 + (sign ? 1 : 0);
    if (kind == '#') return scan_comment();
    if (kind == '%' && scan_raw()) return;
    add(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, source_.substr(tag, 2));
    scan_inside(kind == '{');
  }

  void scan_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("Missing end of comment tag");
    const char sign = end > at_ ? sign_at(end - 1) : 0;
    at_ = end + 2;
    finish_tag(sign, true);
  }

  // {% raw %} ... {% endraw %}; returns false when the tag is another one.
  bool scan_raw() {
    const size_t begin = at_;
    skip_space();
    if (!at("raw")) return at_ = begin, false;
    at_ += 3;
    skip_space();
    const char open_sign = at("-%}") ? '-' : 0;
    if (!open_sign && !at("%}")) return at_ = begin, false;
    at_ += open_sign ? 3 : 2;
    if (open_sign) skip_space();
    line_starting_ = source_[at_ - 1] == '\n';
    const size_t text = at_;
    for (size_t end = source_.find("{%", at_); end != std::string::npos; end = source_.find("{%", end + 2)) {
      const char sign = sign_at(end + 2);
      at_ = end + 2 + (sign ? 1 : 0);
      skip_space();
      if (!at("endraw")) continue;
      at_ += 6;
      skip_space();
      const char close = sign_at(at_);
      if (close) ++at_;
      if (!at("%}")) continue;
      at_ += 2;
      add_data(std::string_view(source_).substr(text, end - text), sign, true);
      finish_tag(close, true);
      return true;
    }
    at_ = begin;
    fail("Missing end of raw directive");
  }

  void scan_inside(bool variable) {
    const std::string_view close = variable ? "}}" : "%}";
    std::string open;                       // brackets not closed yet
    while (true) {
      skip_space();
      if (at_ >= source_.size()) return;    // the parser reports the unexpected end
      if (open.empty()) {
        const char sign = source_[at_] == '-' || (source_[at_] == '+' && !variable) ? source_[at_] : 0;
        if (rest().substr(sign ? 1 : 0).starts_with(close)) {
          add(variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, close);
          at_ += 2 + (sign ? 1 : 0);
          finish_tag(sign, !variable);
          return;
        }
      }
      scan_token(open);
    }
  }

  void scan_token(std::string& open) {
    const char c = source_[at_];
    if (is_digit_char(c)) return scan_number();
    if (c == '"' || c == '\'') return scan_string(c);
    const auto d = utf8::decode_one(rest());
    if (d.c == '_' || is_alpha(d.c)) {
      size_t end = at_;
      while (end < source_.size()) {
        const auto next = utf8::decode_one(std::string_view(source_).substr(end));
        if (!is_word(next.c)) break;
        end += next.n_bytes;
      }
      add(TokenType::kName, std::string_view(source_).substr(at_, end - at_));
      at_ = end;
      return;
    }
    static constexpr std::array<std::string_view, 25> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                                    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    const auto op = std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view o) { return at(o); });
    if (op == kOperators.end()) fail(fmt::format("unexpected char {}", d.c < 0x80 ? fmt::format("'{}'", c) : std::string(rest().substr(0, d.n_bytes))));
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(fmt::format("unexpected '{}'", c));
      const char expected = open.back() == '(' ? ')' : open.back() == '[' ? ']' : '}';
      if (c != expected) fail(fmt::format("unexpected '{}', expected '{}'", c, expected));
      open.pop_back();
    }
    add(TokenType::kOperator, *op);
    at_ += op->size();
  }

  // Digits with single underscores between them; returns the end.
  size_t digits_end(size_t i) const {
    while (i < source_.size() && (is_digit_char(source_[i]) || (source_[i] == '_' && i + 1 < source_.size() && is_digit_char(source_[i + 1]) && i > at_))) ++i;
    return i;
  }

  void scan_number() {
    std::string text;
    TokenType type = TokenType::kInteger;
    size_t end = at_;
    const char base = at_ + 1 < source_.size() && source_[at_] == '0' ? static_cast<char>(source_[at_ + 1] | 0x20) : 0;
    if (base == 'x' || base == 'o' || base == 'b') {
      end += 2;
      while (end < source_.size() && (std::isxdigit(static_cast<unsigned char>(source_[end])) || source_[end] == '_')) ++end;
    } else {
      end = digits_end(at_);
      const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
      if (!after_dot && end + 1 < source_.size() && source_[end] == '.' && is_digit_char(source_[end + 1])) {
        type = TokenType::kFloat;
        end = digits_end(end + 1);
      }
      if (!after_dot && end < source_.size() && (source_[end] | 0x20) == 'e') {
        size_t e = end + 1;
        if (e < source_.size() && (source_[e] == '+' || source_[e] == '-')) ++e;
        if (e < source_.size() && is_digit_char(source_[e])) {
          type = TokenType::kFloat;
          end = digits_end(e);
        }
      }
    }
    std::copy_if(source_.begin() + at_, source_.begin() + end, std::back_inserter(text), [](char c) { return c != '_'; });
    add(type, text);
    at_ = end;
  }

  void scan_string(char quote) {
    std::string text;
    size_t i = at_ + 1;
    while (true) {
      if (i >= source_.size()) fail("unexpected char '" + std::string(1, quote) + "': a string without its end");
      if (source_[i] == quote) break;
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = unescape(text, i + 1);
      } else {
        text += source_[i++];
      }
    }
    add(TokenType::kString, text);
    at_ = i + 1;
  }

  // Python's escapes; `i` is at the character after the backslash. Returns where to go on.
  size_t unescape(std::string& text, size_t i) {
    static constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    const char c = source_[i];
    if (c == '\n') return i + 1;
    if (const size_t k = kNames.find(c); k != std::string_view::npos) {
      text += kValues[k];
      return i + 1;
    }
    char32_t value = 0;
    if (c >= '0' && c <= '7') {
      size_t n = 0;
      while (n < 3 && i < source_.size() && source_[i] >= '0' && source_[i] <= '7') value = value * 8 + (source_[i] - '0'), ++i, ++n;
      utf8::append(text, value);
      return i;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      for (size_t k = 1; k <= n; ++k) {
        const char h = i + k < source_.size() ? source_[i + k] : 0;
        if (!std::isxdigit(static_cast<unsigned char>(h))) fail(fmt::format("truncated \\{} escape in a string", c));
        value = value * 16 + (h <= '9' ? h - '0' : (h | 0x20) - 'a' + 10);
      }
      utf8::append(text, value > 0x10FFFF || (value >= 0xD800 && value < 0xE000) ? utf8::kReplacement : value);
      return i + 1 + n;
    }
    text += '\\';
    return i;
  }
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace ridge::jinja
