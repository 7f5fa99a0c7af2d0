#include "text/normalizers.h"

#include <functional>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/characters.h"
#include "text/pattern.h"

namespace ridge {
namespace {

constexpr size_t kMaxText = 4 << 20;         // a chain of replacements could grow a text without end

// A normalizer given by a function: most are one line.
class Map final : public Normalizer {
 public:
  explicit Map(std::function<std::string(std::string)> f) : f_(std::move(f)) {}
  std::string apply(std::string text) const override { return f_(std::move(text)); }

 private:
  std::function<std::string(std::string)> f_;
};

class NormalizerChain final : public Normalizer {
 public:
  explicit NormalizerChain(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  std::string apply(std::string text) const override {
    const size_t limit = std::max(kMaxText, text.size() * 32);
    for (const auto& part : parts_) {
      text = part->apply(std::move(text));
      if (text.size() > limit) fail("the tokenizer's normalizers blow a text up to {} bytes", text.size());
    }
    return text;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

template <class F>
std::unique_ptr<Normalizer> map(F f) { return std::make_unique<Map>(std::move(f)); }

// Each character through f, which appends what it becomes.
template <class F>
std::string each(std::string_view text, F&& f) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const utf8::Decoded d = utf8::decode_one(text);
    text.remove_prefix(d.n_bytes);
    f(out, d.c);
  }
  return out;
}

template <class Drop>
std::string without(std::string_view text, Drop&& drop) {
  return each(text, [&](std::string& out, char32_t c) { if (!drop(c)) utf8::append(out, c); });
}

std::string strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const utf8::Decoded d = utf8::decode_one(text);
    if (!is_whitespace(d.c)) break;
    text.remove_prefix(d.n_bytes);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!is_whitespace(utf8::decode_one(text.substr(begin)).c)) break;
    text.remove_suffix(text.size() - begin);
  }
  return std::string(text);
}

// The clean-up of OpenNMT: controls vanish, odd spaces become spaces.
std::string nmt(std::string_view text) {
  return each(text, [](std::string& out, char32_t c) {
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return;
    const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    utf8::append(out, space ? U' ' : c);
  });
}

struct Bert {
  bool clean_text, handle_chinese_chars, strip_accents, lower;

  std::string operator()(std::string text) const {
    if (clean_text) text = each(text, [](std::string& out, char32_t c) {
      if (c == 0 || c == 0xFFFD || is_control(c)) return;
      utf8::append(out, is_whitespace(c) ? U' ' : c);
    });
    if (handle_chinese_chars) text = each(text, [](std::string& out, char32_t c) {
      const bool apart = is_cjk_ideograph(c);
      if (apart) out += ' ';
      utf8::append(out, c);
      if (apart) out += ' ';
    });
    if (strip_accents) text = without(normalize(text, NormalForm::nfd), is_nonspacing_mark);
    return lower ? lowercase(text) : text;
  }
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const JsonSection& s) {
  const std::string type = s.type();
  const auto form = [](NormalForm f) { return map([f](std::string text) { return normalize(text, f); }); };
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> parts;
    for (const JsonSection& part : s.sections("normalizers")) parts.push_back(make_normalizer(part));
    return std::make_unique<NormalizerChain>(std::move(parts));
  }
  if (type == "NFC") return form(NormalForm::nfc);
  if (type == "NFD") return form(NormalForm::nfd);
  if (type == "NFKC") return form(NormalForm::nfkc);
  if (type == "NFKD") return form(NormalForm::nfkd);
  if (type == "Lowercase") return map([](std::string text) { return lowercase(text); });
  if (type == "StripAccents") return map([](std::string text) { return without(text, is_mark); });
  if (type == "Nmt") return map([](std::string text) { return nmt(text); });
  if (type == "ByteLevel") return map([](std::string text) { return byte_level::to_characters(text); });
  if (type == "Strip") {
    const bool left = s.boolean_or("strip_left", true), right = s.boolean_or("strip_right", true);
    return map([=](std::string text) { return strip(text, left, right); });
  }
  if (type == "Prepend") return map([prefix = s.string("prepend")](std::string text) { return text.empty() ? text : prefix + text; });
  if (type == "Replace") {
    const auto pattern = std::make_shared<const Pattern>(Pattern::from_json(s));
    return map([pattern, content = s.string("content")](std::string text) { return pattern->replace_all(text, content); });
  }
  if (type == "Precompiled") return make_charsmap(s.string("precompiled_charsmap"), s.where());
  if (type == "BertNormalizer") {
    const bool lower = s.boolean_or("lowercase", true);
    return map(Bert{s.boolean_or("clean_text", true), s.boolean_or("handle_chinese_chars", true), s.boolean_or("strip_accents", lower), lower});
  }
  s.refuse("the normalizer \"" + type + "\" is not supported");
}

std::unique_ptr<Normalizer> make_space_marker(bool prepend) {
  return map([prepend](std::string text) {
    std::string out(prepend && !text.empty() ? "\u2581" : "");
    out.reserve(text.size() + text.size() / 2);
    for (const char c : text) {
      if (c == ' ') out += "\u2581";
      else out += c;
    }
    return out;
  });
}

}  // namespace ridge
