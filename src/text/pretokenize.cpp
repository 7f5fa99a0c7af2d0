#include "text/pretokenize.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/characters.h"

namespace ridge {
namespace {

constexpr std::string_view kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// \w+|[^\w\s]+ with the \w of Unicode's annex 18, which has the two joiners.
constexpr std::string_view kWhitespace =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\s]+)";

// Collects the pieces of one text according to a behavior.
class Splitter {
 public:
  Splitter(std::vector<Piece>& out, SplitBehavior behavior, bool invert) : out_(out), behavior_(behavior), invert_(invert) {}

  void split(const Piece& piece, const std::vector<Span>& matches) {
    parts_.clear();
    size_t at = 0;
    for (const Span& m : matches) {
      if (m.begin > at) add({at, m.begin}, invert_);
      add(m, !invert_);
      at = m.end;
    }
    if (at < piece.text.size()) add({at, piece.text.size()}, invert_);
    if (behavior_ == SplitBehavior::merged_with_next) merge_with_next();
    for (const Span& p : parts_)
      if (p.end > p.begin) out_.push_back({piece.text.substr(p.begin, p.end - p.begin), piece.at_start && p.begin == 0});
  }

 private:
  std::vector<Piece>& out_;
  SplitBehavior behavior_;
  bool invert_;
  std::vector<Span> parts_;
  std::vector<bool> is_match_;
  bool last_was_match_ = false;

  void add(Span span, bool is_match) {
    if (parts_.empty()) { is_match_.clear(); last_was_match_ = false; }
    const bool joins = (behavior_ == SplitBehavior::contiguous && !parts_.empty() && is_match == last_was_match_) ||
                       (behavior_ == SplitBehavior::merged_with_previous && !parts_.empty() && is_match && !last_was_match_);
    last_was_match_ = is_match;
    if (behavior_ == SplitBehavior::removed && is_match) span.end = span.begin;
    if (joins) { parts_.back().end = span.end; return; }
    parts_.push_back(span);
    is_match_.push_back(is_match);
  }

  void merge_with_next() {
    std::vector<Span> merged;
    bool last = false;
    for (size_t i = parts_.size(); i-- > 0;) {
      if (is_match_[i] && !last && !merged.empty()) merged.back().begin = parts_[i].begin;
      else merged.push_back(parts_[i]);
      last = is_match_[i];
    }
    std::reverse(merged.begin(), merged.end());
    parts_ = std::move(merged);
  }
};

class Split final : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert) : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(std::vector<Piece>& pieces, StringArena&) const override {
    std::vector<Piece> out;
    size_t n_bytes = 0;
    for (const Piece& p : pieces) n_bytes += p.text.size();
    out.reserve(std::max(pieces.size(), n_bytes / 4));
    Pattern::Search search(pattern_);
    Splitter splitter(out, behavior_, invert_);
    std::vector<Span> matches;
    for (const Piece& piece : pieces) {
      search.find_all(matches, piece.text);
      splitter.split(piece, matches);
    }
    pieces = std::move(out);
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Splits at every character of a class.
class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(bool (*is_match)(char32_t), SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}
  void apply(std::vector<Piece>& pieces, StringArena&) const override {
    std::vector<Piece> out;
    Splitter splitter(out, behavior_, false);
    std::vector<Span> matches;
    for (const Piece& piece : pieces) {
      matches.clear();
      for (size_t at = 0; at < piece.text.size();) {
        const utf8::Decoded d = utf8::decode_one(piece.text.substr(at));
        if (is_match_(d.c)) matches.push_back({at, at + d.n_bytes});
        at += d.n_bytes;
      }
      splitter.split(piece, matches);
    }
    pieces = std::move(out);
  }

 private:
  bool (*is_match_)(char32_t);
  SplitBehavior behavior_;
};

class DigitGroups final : public PreTokenizer {
 public:
  DigitGroups(bool all_numbers, bool to_boundary)
      : runs_(Pattern::regex(all_numbers ? R"(\p{N}+)" : to_boundary ? R"((?<!\d)\d++(?!\w))" : R"(\d+)", "digit groups")) {}
  void apply(std::vector<Piece>& pieces, StringArena&) const override {
    std::vector<Piece> out;
    Splitter splitter(out, SplitBehavior::isolated, false);
    Pattern::Search search(runs_);
    std::vector<Span> runs, groups;
    for (const Piece& piece : pieces) {
      search.find_all(runs, piece.text);
      groups.clear();
      for (const Span& run : runs) {
        std::vector<size_t> digits;                       // where each digit begins
        for (size_t at = run.begin; at < run.end; at += utf8::decode_one(piece.text.substr(at)).n_bytes) digits.push_back(at);
        for (size_t i = 0; i < digits.size();) {
          const size_t n = i == 0 && digits.size() % 3 ? digits.size() % 3 : 3;
          groups.push_back({digits[i], i + n < digits.size() ? digits[i + n] : run.end});
          i += n;
        }
      }
      splitter.split(piece, groups);
    }
    pieces = std::move(out);
  }

 private:
  Pattern runs_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(size_t n_characters) : n_(n_characters) {}
  void apply(std::vector<Piece>& pieces, StringArena&) const override {
    std::vector<Piece> out;
    for (const Piece& piece : pieces) {
      size_t begin = 0, at = 0, n = 0;
      const auto cut = [&] { if (at > begin) out.push_back({piece.text.substr(begin, at - begin), piece.at_start && begin == 0}); begin = at; n = 0; };
      while (at < piece.text.size()) {
        at += utf8::decode_one(piece.text.substr(at)).n_bytes;
        if (++n == n_) cut();
      }
      cut();
    }
    pieces = std::move(out);
  }

 private:
  size_t n_;
};

class AddPrefixSpace final : public PreTokenizer {
 public:
  void apply(std::vector<Piece>& pieces, StringArena& arena) const override {
    for (Piece& p : pieces)
      if (!p.text.starts_with(' ')) p.text = arena.emplace_back(" " + std::string(p.text));
  }
};

class ByteLevelCharacters final : public PreTokenizer {
 public:
  void apply(std::vector<Piece>& pieces, StringArena& arena) const override {
    for (Piece& p : pieces) p.text = arena.emplace_back(byte_level::to_characters(p.text));
  }
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend { always, first, never };
  Metaspace(std::string replacement, Prepend prepend) : replacement_(std::move(replacement)), prepend_(prepend) {}
  void apply(std::vector<Piece>& pieces, StringArena& arena) const override {
    for (Piece& p : pieces) {
      std::string& text = arena.emplace_back();
      text.reserve(p.text.size() + p.text.size() / 2 + 4);
      const bool has_mark = p.text.starts_with(' ') || p.text.starts_with(replacement_);
      if (!has_mark && (prepend_ == Prepend::always || (prepend_ == Prepend::first && p.at_start))) text += replacement_;
      for (const char c : p.text) {
        if (c == ' ') text += replacement_;
        else text += c;
      }
      p.text = text;
    }
  }

 private:
  std::string replacement_;
  Prepend prepend_;
};

SplitBehavior behavior_of(const JsonSection& s, std::string_view otherwise) {
  const std::string name = s.string_or("behavior", otherwise);
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  s.refuse("the behavior \"" + name + "\" is not known");
}

Metaspace::Prepend prepend_of(const JsonSection& s) {
  if (!s.has("prepend_scheme")) return s.boolean_or("add_prefix_space", true) ? Metaspace::Prepend::always : Metaspace::Prepend::never;
  const std::string name = s.string("prepend_scheme");
  if (name == "always") return Metaspace::Prepend::always;
  if (name == "first") return Metaspace::Prepend::first;
  if (name == "never") return Metaspace::Prepend::never;
  s.refuse("the prepend_scheme \"" + name + "\" is not known");
}

std::unique_ptr<PreTokenizer> split_from_json(const JsonSection& s) {
  const SplitBehavior behavior = behavior_of(s, "Isolated");
  const bool invert = s.boolean_or("invert", false);
  // Cohere's grouping of digits looks ahead over the whole run from each of its digits; the same groups in one pass.
  if (s.has("pattern") && s.json()["pattern"].is_object() && s.json()["pattern"].value("Regex", Json()) == R"(\d{1,3}(?=(?:\d{3})*\b))" &&
      behavior == SplitBehavior::isolated && !invert)
    return make_digit_groups(false, true);
  return make_split(Pattern::from_json(s), behavior, invert);
}

}  // namespace

std::unique_ptr<PreTokenizer> make_split(Pattern pattern, SplitBehavior behavior, bool invert) { return std::make_unique<Split>(std::move(pattern), behavior, invert); }
std::unique_ptr<PreTokenizer> make_digit_groups(bool all_numbers, bool to_boundary) { return std::make_unique<DigitGroups>(all_numbers, to_boundary); }
std::unique_ptr<PreTokenizer> make_byte_level_characters() { return std::make_unique<ByteLevelCharacters>(); }
bool is_byte_level_characters(const PreTokenizer& stage) { return dynamic_cast<const ByteLevelCharacters*>(&stage) != nullptr; }

void append_pre_tokenizers(PreTokenizerList& stages, const JsonSection& s) {
  const std::string type = s.type();
  const auto at_characters = [&](bool (*is_match)(char32_t), SplitBehavior behavior) { stages.push_back(std::make_unique<CharacterSplit>(is_match, behavior)); };
  if (type == "Sequence") {
    for (const JsonSection& part : s.sections("pretokenizers")) append_pre_tokenizers(stages, part);
  } else if (type == "ByteLevel") {
    if (s.boolean_or("add_prefix_space", true)) stages.push_back(std::make_unique<AddPrefixSpace>());
    if (s.boolean_or("use_regex", true)) stages.push_back(make_split(Pattern::regex(kGpt2Words, s.where()), SplitBehavior::isolated, false));
    stages.push_back(make_byte_level_characters());
  } else if (type == "Metaspace") {
    const std::string mark = s.string_or("replacement", "\u2581");
    if (mark.empty()) s.refuse("the replacement must be a character");
    stages.push_back(std::make_unique<Metaspace>(mark, prepend_of(s)));
    if (s.boolean_or("split", true)) stages.push_back(make_split(Pattern::string(mark), SplitBehavior::merged_with_next, false));
  } else if (type == "Split") {
    stages.push_back(split_from_json(s));
  } else if (type == "Whitespace") {
    stages.push_back(make_split(Pattern::regex(kWhitespace, s.where()), SplitBehavior::removed, true));
  } else if (type == "WhitespaceSplit") {
    at_characters(is_whitespace, SplitBehavior::removed);
  } else if (type == "BertPreTokenizer") {
    at_characters(is_whitespace, SplitBehavior::removed);
    at_characters(is_punctuation, SplitBehavior::isolated);
  } else if (type == "Punctuation") {
    at_characters(is_punctuation, behavior_of(s, "Isolated"));
  } else if (type == "Digits") {
    at_characters(is_numeric, s.boolean_or("individual_digits", false) ? SplitBehavior::isolated : SplitBehavior::contiguous);
  } else if (type == "CharDelimiterSplit") {
    stages.push_back(make_split(Pattern::string(s.string("delimiter")), SplitBehavior::removed, false));
  } else if (type == "FixedLength") {
    const int64_t n = s.integer_or("length", 5);
    if (n < 1) s.refuse("the length must be at least 1");
    stages.push_back(std::make_unique<FixedLength>(static_cast<size_t>(n)));
  } else {
    s.refuse("the pre-tokenizer \"" + type + "\" is not supported");
  }
}

}  // namespace ridge
