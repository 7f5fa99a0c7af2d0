#include "text/unigram.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace ridge {

Unigram::Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores, int32_t unk_id, bool byte_fallback, const std::vector<bool>& inert)
    : vocabulary_(std::move(vocabulary)), scores_(std::move(scores)), unk_id_(unk_id), byte_fallback_(byte_fallback) {
  unk_score_ = (scores_.empty() ? 0.0 : *std::min_element(scores_.begin(), scores_.end())) - 10.0;
  for (int32_t id = 0; id < vocabulary_->size(); ++id) {
    const bool is_inert = static_cast<size_t>(id) < inert.size() && inert[id];
    if (vocabulary_->has(id) && !is_inert && !vocabulary_->name(id).empty()) trie_.insert(vocabulary_->name(id), id);
  }
  for (int b = 0; b < 256; ++b) byte_ids_[b] = vocabulary_->find(fmt::format("<0x{:02X}>", b)).value_or(-1);
}

void Unigram::append_unknown(std::vector<int32_t>& out, std::string_view text) const {
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](unsigned char b) { return byte_ids_[b] >= 0; })) {
    for (const unsigned char b : text) out.push_back(byte_ids_[b]);
  } else if (const auto id = vocabulary_->find(text)) {
    out.push_back(*id);                   // several unknown characters whose text together is a token after all
  } else {
    if (unk_id_ < 0) fail("the tokenizer has no token for \"{}\" and no unk_id", text);
    out.push_back(unk_id_);
  }
}

void Unigram::encode_one(std::vector<int32_t>& out, std::string_view text, std::vector<Best>& best) const {
  best.assign(text.size() + 1, {});
  for (size_t at = 0; at < text.size();) {
    const size_t n_char = utf8::decode_one(text.substr(at)).n_bytes;
    const double here = best[at].score;
    bool covers_char = false;
    const auto offer = [&](size_t end, double score, int32_t id) {
      Best& b = best[end];
      if (b.id < 0 || score > b.score) b = {score, at, id};
    };
    int32_t node = ByteTrie::kRoot;
    for (size_t end = at; end < text.size();) {
      node = trie_.step(node, text[end++]);
      if (node == ByteTrie::kNone) break;
      const int32_t id = trie_.value(node);
      if (id == ByteTrie::kNone) continue;
      offer(end, here + scores_[id], id);
      if (end - at == n_char) covers_char = true;
    }
    if (!covers_char) offer(at + n_char, here + unk_score_, INT32_MAX);
    at += n_char;
  }
  const size_t first = out.size();
  for (size_t end = text.size(); end > 0;) {
    if (best[end].id != INT32_MAX && best[end].id != unk_id_) {
      out.push_back(best[end].id);
      end = best[end].begin;
      continue;
    }
    size_t begin = best[end].begin;
    while (begin > 0 && (best[begin].id == INT32_MAX || best[begin].id == unk_id_)) begin = best[begin].begin;
    const size_t mark = out.size();
    append_unknown(out, text.substr(begin, end - begin));
    std::reverse(out.begin() + mark, out.end());
    end = begin;
  }
  std::reverse(out.begin() + first, out.end());
}

void Unigram::encode(std::vector<int32_t>& out, std::span<const Piece> pieces) const {
  size_t n_bytes = 0;
  for (const Piece& p : pieces) n_bytes += p.text.size();
  PieceCache cache(n_bytes);
  std::vector<Best> best;
  for (const Piece& piece : pieces) cache.append(out, piece.text, [&](std::string_view text, std::vector<int32_t>& ids) { encode_one(ids, text, best); });
}

std::string Unigram::description() const { return fmt::format("Unigram{}, {} tokens", byte_fallback_ ? " with byte fallback" : "", vocabulary_->n_tokens()); }

}  // namespace ridge
