#include "text/score_merge.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/merge.h"

namespace ridge {

ScoreMerge::ScoreMerge(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<float>& scores, std::vector<bool> inert, int32_t unk_id, std::string_view what)
    : vocabulary_(std::move(vocabulary)), inert_(std::move(inert)) {
  const int n = vocabulary_->size();
  if (scores.size() != static_cast<size_t>(n)) fail("{}: {} scores for {} tokens", what, scores.size(), n);
  if (std::any_of(scores.begin(), scores.end(), [](float s) { return std::isnan(s); })) fail("{}: a score that is not a number", what);
  inert_.resize(n);
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  ranks_.resize(n);
  uint32_t rank = 0;
  for (int i = 0; i < n; ++i) {
    if (i > 0 && scores[order[i]] < scores[order[i - 1]]) ++rank;
    ranks_[order[i]] = rank;
  }
  for (int32_t id = 0; id < n; ++id)
    if (vocabulary_->has(id) && !inert_[id] && crosses_words(vocabulary_->name(id))) words_are_apart_ = false;
  for (int b = 0; b < 256; ++b) {
    auto id = vocabulary_->find(fmt::format("<0x{:02X}>", b));
    if (!id) id = vocabulary_->find(std::string(1, static_cast<char>(b)));
    byte_ids_[b] = id.value_or(unk_id);
    if (byte_ids_[b] < 0) fail("{}: the vocabulary has no token for byte {} and no unknown token", what, b);
  }
}

int32_t ScoreMerge::find(std::string_view text) const {
  if (text.size() > vocabulary_->longest_bytes()) return -1;
  const auto id = vocabulary_->find(text);
  return id && !inert_[*id] ? *id : -1;
}

void ScoreMerge::encode(std::vector<int32_t>& out, std::span<const Piece> pieces) const {
  size_t n_bytes = 0;
  for (const Piece& p : pieces) n_bytes += p.text.size();
  PieceCache cache(n_bytes);
  MergeScratch scratch;
  const auto encode_word = [&](std::string_view text, std::vector<int32_t>& ids) {
    scratch.symbols.clear();
    for (size_t at = 0; at < text.size();) {
      const size_t n = utf8::decode_one(text.substr(at)).n_bytes;
      scratch.symbols.push_back({find(text.substr(at, n)), static_cast<uint32_t>(at), static_cast<uint32_t>(n), -1, -1});
      at += n;
    }
    scratch.merge([&](const MergeSymbol& left, const MergeSymbol& right) {
      const int32_t id = find(text.substr(left.begin, left.n_bytes + right.n_bytes));
      return id < 0 ? Merge{} : Merge{ranks_[id], id};
    });
    for (const MergeSymbol& s : scratch.symbols) {
      if (s.id >= 0) ids.push_back(s.id);
      else for (const unsigned char b : text.substr(s.begin, s.n_bytes)) ids.push_back(byte_ids_[b]);
    }
  };
  for (const Piece& piece : pieces) {
    if (words_are_apart_) for_each_word(piece.text, [&](std::string_view word) { cache.append(out, word, encode_word); });
    else cache.append(out, piece.text, encode_word);
  }
}

std::string ScoreMerge::description() const { return fmt::format("SentencePiece (merges by score), {} tokens", vocabulary_->n_tokens()); }

}  // namespace ridge
