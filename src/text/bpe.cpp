#include "text/bpe.h"

#include <bit>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_level.h"

namespace ridge {
namespace {

uint64_t pair_of(int32_t left, int32_t right) { return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right); }
constexpr uint64_t kFree = UINT64_MAX;

}  // namespace

bool crosses_words(std::string_view token) {
  constexpr std::string_view kMark = "\u2581";
  const size_t last = token.rfind(kMark);
  if (last == std::string_view::npos) return false;
  for (size_t at = 0; at < last; at += kMark.size())
    if (!token.substr(at).starts_with(kMark)) return true;
  return false;
}

Bpe::Bpe(std::shared_ptr<const Vocabulary> vocabulary, const MergeList& merges, BpeOptions options, std::vector<bool> inert, std::string_view what)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)), inert_(std::move(inert)) {
  inert_.resize(vocabulary_->size());
  add_merges(merges, what);
  if (options_.unk) {
    const auto id = vocabulary_->find(*options_.unk);
    if (!id) fail("{}: unk_token \"{}\" is not in the vocabulary", what, *options_.unk);
    unk_id_ = *id;
  }
  for (int b = 0; b < 256; ++b) byte_ids_[b] = vocabulary_->find(options_.bytes ? byte_level::characters()[b] : fmt::format("<0x{:02X}>", b)).value_or(-1);
  if (options_.bytes && options_.ignore_merges) {
    raw_.emplace();
    raw_->reserve(vocabulary_->size());
    for (int32_t id = 0; id < vocabulary_->size(); ++id) {
      if (!vocabulary_->has(id) || inert_[id]) continue;
      if (auto bytes = byte_level::to_bytes(vocabulary_->name(id))) raw_->insert_or_alias(std::move(*bytes), id, what);
    }
  }
}

size_t Bpe::slot_of(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = (pair * 0x9E3779B97F4A7C15ull >> 24) & mask;
  while (slots_[slot].pair != kFree && slots_[slot].pair != pair) slot = (slot + 1) & mask;
  return slot;
}

void Bpe::add_merges(const MergeList& merges, std::string_view what) {
  slots_.assign(std::bit_ceil(merges.size() * 2 + 2), {kFree, {}});
  const size_t prefix = options_.continuing_subword_prefix.size();
  words_are_apart_ = !options_.bytes && prefix == 0 && options_.end_of_word_suffix.empty() && vocabulary_->find("\u2581").has_value();
  std::string joined;
  uint32_t rank = 0;
  for (const auto& [left, right] : merges) {
    const auto l = vocabulary_->find(left), r = vocabulary_->find(right);
    if (!l || !r) fail("{}: merge {} joins \"{}\" and \"{}\", but \"{}\" is not in the vocabulary", what, rank, left, right, l ? right : left);
    joined.assign(left);
    if (right.size() >= prefix) joined.append(right, prefix);
    const auto id = vocabulary_->find(joined);
    if (!id) fail("{}: merge {} makes \"{}\", which is not in the vocabulary", what, rank, joined);
    Slot& slot = slots_[slot_of(pair_of(*l, *r))];
    if (slot.pair == kFree) ++n_merges_;
    slot = {pair_of(*l, *r), {rank, *id}};             // of two equal merges the later one counts, as in Hugging Face's table
    if (words_are_apart_ && crosses_words(joined)) words_are_apart_ = false;
    ++rank;
  }
}

// One symbol per byte, or per character with its fallback; unknown ones become unk, or nothing where there is no unk.
void Bpe::first_symbols(std::vector<MergeSymbol>& symbols, std::string_view text) const {
  symbols.clear();
  const auto add = [&](int32_t id, size_t begin, size_t n_bytes) {
    symbols.push_back({id, static_cast<uint32_t>(begin), static_cast<uint32_t>(n_bytes), -1, -1});
  };
  struct Unknown { size_t begin, n_bytes; } unknown{0, 0};
  const auto flush = [&] {
    if (unknown.n_bytes) add(unk_id_, unknown.begin, unknown.n_bytes);
    unknown = {0, 0};
  };
  std::string decorated;
  for (size_t at = 0; at < text.size();) {
    const size_t n = options_.bytes ? 1 : utf8::decode_one(text.substr(at)).n_bytes;
    std::string_view unit = text.substr(at, n);
    int32_t id = -1;
    if (options_.bytes) {
      id = byte_ids_[static_cast<unsigned char>(unit[0])];
    } else {
      const bool is_first = at == 0, is_last = at + n == text.size();
      if ((!is_first && !options_.continuing_subword_prefix.empty()) || (is_last && !options_.end_of_word_suffix.empty())) {
        decorated = fmt::format("{}{}{}", is_first ? "" : options_.continuing_subword_prefix, unit, is_last ? options_.end_of_word_suffix : "");
        unit = decorated;
      }
      id = vocabulary_->find(unit).value_or(-1);
    }
    if (id >= 0) {
      flush();
      add(id, at, n);
    } else if (options_.byte_fallback && !options_.bytes &&
               std::all_of(unit.begin(), unit.end(), [&](unsigned char b) { return byte_ids_[b] >= 0; })) {
      for (size_t k = 0; k < unit.size(); ++k) add(byte_ids_[static_cast<unsigned char>(unit[k])], at + std::min(k, n - 1), 1);
    } else if (unk_id_ >= 0) {
      if (!options_.fuse_unk) flush();
      if (unknown.n_bytes == 0) unknown.begin = at;
      unknown.n_bytes += n;
    }
    at += n;
  }
  flush();
}

std::optional<int32_t> Bpe::whole(std::string_view text) const {
  if (!options_.ignore_merges) return std::nullopt;
  const auto id = (raw_ ? *raw_ : *vocabulary_).find(text);
  return id && !inert_[*id] ? id : std::nullopt;
}

void Bpe::encode_one(std::vector<int32_t>& out, std::string_view text, MergeScratch& scratch) const {
  first_symbols(scratch.symbols, text);
  scratch.merge([this](const MergeSymbol& left, const MergeSymbol& right) {
    const Slot& slot = slots_[slot_of(pair_of(left.id, right.id))];
    return slot.pair == kFree ? Merge{} : slot.merge;
  });
  for (const MergeSymbol& s : scratch.symbols) out.push_back(s.id);
}

void Bpe::encode(std::vector<int32_t>& out, std::span<const Piece> pieces) const {
  size_t n_bytes = 0;
  for (const Piece& p : pieces) n_bytes += p.text.size();
  PieceCache cache(n_bytes);
  MergeScratch scratch;
  const auto encode_word = [&](std::string_view text, std::vector<int32_t>& ids) { encode_one(ids, text, scratch); };
  for (const Piece& piece : pieces) {
    if (words_are_apart_) {
      if (const auto id = whole(piece.text)) out.push_back(*id);
      else for_each_word(piece.text, [&](std::string_view word) { cache.append(out, word, encode_word); });
    } else {
      cache.append(out, piece.text, [&](std::string_view text, std::vector<int32_t>& ids) {
        if (const auto id = whole(text)) ids.push_back(*id);
        else encode_one(ids, text, scratch);
      });
    }
  }
}

std::string Bpe::description() const {
  return fmt::format("{}BPE{}, {} tokens, {} merges", options_.bytes ? "byte-level " : "", options_.byte_fallback ? " with byte fallback" : "",
                     vocabulary_->n_tokens(), n_merges_);
}

}  // namespace ridge
