#include "text/decoders.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/pattern.h"

namespace ridge {
namespace {

using Tokens = std::vector<std::string>;

void fuse(Tokens& tokens) {
  std::string all;
  for (const std::string& t : tokens) all += t;
  tokens.assign(1, std::move(all));
}

class Fuse final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override { fuse(tokens); }
};

class ByteLevel final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override {
    for (std::string& t : tokens) t = bytes(std::move(t));
    fuse(tokens);
    tokens[0] = utf8::replace_invalid(tokens[0]);
  }
  std::string bytes(std::string token) const override { return byte_level::to_bytes(token).value_or(token); }
};

// "<0x0A>": the byte, or -1.
int byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  const int high = digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// A run of byte tokens is its text when that is well-formed, else one U+FFFD per byte.
class ByteFallback final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override {
    Tokens out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (utf8::is_valid(run)) out.push_back(run);
      else for (size_t i = 0; i < run.size(); ++i) out.push_back("\uFFFD");
      run.clear();
    };
    for (std::string& t : tokens) {
      if (const int b = byte_of(t); b >= 0) { run += static_cast<char>(b); continue; }
      flush();
      out.push_back(std::move(t));
    }
    flush();
    tokens = std::move(out);
  }
  std::string bytes(std::string token) const override {
    const int b = byte_of(token);
    return b >= 0 ? std::string(1, static_cast<char>(b)) : token;
  }
};

class Replace final : public TokenDecoder {
 public:
  Replace(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(Tokens& tokens) const override {
    for (std::string& t : tokens) t = bytes(std::move(t));
  }
  std::string bytes(std::string token) const override { return utf8::is_valid(token) ? pattern_.replace_all(token, content_) : token; }

 private:
  Pattern pattern_;
  std::string content_;
};

class Strip final : public TokenDecoder {
 public:
  Strip(std::string content, size_t start, size_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(Tokens& tokens) const override {
    for (std::string& t : tokens) {
      std::string_view rest = t;
      for (size_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (size_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      t = std::string(rest);
    }
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

class MetaspaceDecoder final : public TokenDecoder {
 public:
  MetaspaceDecoder(std::string mark, bool drop_first) : mark_(Pattern::string(std::move(mark))), drop_first_(drop_first) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = mark_.replace_all(tokens[i], i == 0 && drop_first_ ? "" : " ");
  }
  std::string bytes(std::string token) const override { return mark_.replace_all(token, " "); }

 private:
  Pattern mark_;
  bool drop_first_;
};

std::string clean_up(std::string text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules{{
      {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) text = Pattern::string(std::string(from)).replace_all(text, to);
  return text;
}

class WordPieceDecoder final : public TokenDecoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& t = tokens[i];
      if (i > 0) {
        if (t.starts_with(prefix_)) t.erase(0, prefix_.size());
        else t.insert(0, " ");
      }
      if (cleanup_) t = clean_up(std::move(t));
    }
  }
  std::string bytes(std::string token) const override { return token.starts_with(prefix_) ? token.substr(prefix_.size()) : " " + token; }

 private:
  std::string prefix_;
  bool cleanup_;
};

class SuffixDecoder final : public TokenDecoder {         // BPEDecoder: the suffix ends a word
 public:
  explicit SuffixDecoder(std::string suffix) : suffix_(Pattern::string(std::move(suffix))) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = suffix_.replace_all(tokens[i], i + 1 == tokens.size() ? "" : " ");
  }
  std::string bytes(std::string token) const override { return suffix_.replace_all(token, " "); }

 private:
  Pattern suffix_;
};

class Ctc final : public TokenDecoder {
 public:
  Ctc(std::string pad, std::string delimiter, bool cleanup) : pad_(Pattern::string(std::move(pad))), delimiter_(Pattern::string(std::move(delimiter))), cleanup_(cleanup) {}
  void apply(Tokens& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& t : tokens) {
      t = pad_.replace_all(t, "");
      if (cleanup_) t = delimiter_.replace_all(clean_up(std::move(t)), " ");
    }
    std::erase_if(tokens, [](const std::string& t) { return t.empty(); });
  }

 private:
  Pattern pad_, delimiter_;
  bool cleanup_;
};

class DecoderChain final : public TokenDecoder {
 public:
  explicit DecoderChain(std::vector<std::unique_ptr<TokenDecoder>> parts) : parts_(std::move(parts)) {}
  void apply(Tokens& tokens) const override {
    for (const auto& part : parts_) part->apply(tokens);
  }
  std::string bytes(std::string token) const override {
    for (const auto& part : parts_) token = part->bytes(std::move(token));
    return token;
  }

 private:
  std::vector<std::unique_ptr<TokenDecoder>> parts_;
};

}  // namespace

std::unique_ptr<TokenDecoder> make_decoder(const JsonSection& s) {
  const std::string type = s.type();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<TokenDecoder>> parts;
    for (const JsonSection& part : s.sections("decoders")) parts.push_back(make_decoder(part));
    return std::make_unique<DecoderChain>(std::move(parts));
  }
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Replace") return std::make_unique<Replace>(Pattern::from_json(s), s.string("content"));
  if (type == "Strip") {
    const int64_t start = s.integer_or("start", 0), stop = s.integer_or("stop", 0);
    const std::string content = s.string_or("content", " ");
    if (start < 0 || stop < 0 || content.empty()) s.refuse("start and stop must not be negative, content must not be empty");
    return std::make_unique<Strip>(content, static_cast<size_t>(start), static_cast<size_t>(stop));
  }
  if (type == "Metaspace") {
    const bool prepends = s.has("prepend_scheme") ? s.string("prepend_scheme") != "never" : s.boolean_or("add_prefix_space", true);
    return std::make_unique<MetaspaceDecoder>(s.string_or("replacement", "\u2581"), prepends);
  }
  if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(s.string_or("prefix", "##"), s.boolean_or("cleanup", true));
  if (type == "BPEDecoder") return std::make_unique<SuffixDecoder>(s.string_or("suffix", "</w>"));
  if (type == "CTC") return std::make_unique<Ctc>(s.string_or("pad_token", "<pad>"), s.string_or("word_delimiter_token", "|"), s.boolean_or("cleanup", true));
  s.refuse("the decoder \"" + type + "\" is not supported");
}

std::unique_ptr<TokenDecoder> make_byte_level_decoder() { return std::make_unique<ByteLevel>(); }

std::unique_ptr<TokenDecoder> make_sentencepiece_decoder(bool strip_first_space) {
  std::vector<std::unique_ptr<TokenDecoder>> parts;
  parts.push_back(std::make_unique<Replace>(Pattern::string("\u2581"), " "));
  parts.push_back(std::make_unique<ByteFallback>());
  parts.push_back(std::make_unique<Fuse>());
  if (strip_first_space) parts.push_back(std::make_unique<Strip>(" ", 1, 0));
  return std::make_unique<DecoderChain>(std::move(parts));
}

}  // namespace ridge
