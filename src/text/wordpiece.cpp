#include "text/wordpiece.h"

#include "base/error.h"
#include "base/utf8.h"

namespace ridge {

WordPiece::WordPiece(std::shared_ptr<const Vocabulary> vocabulary, WordPieceOptions options) : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {}

void WordPiece::encode_one(std::vector<int32_t>& out, std::string_view word) const {
  const size_t first = out.size();
  const auto give_up = [&] {
    if (options_.unk_id < 0) fail("the tokenizer has no token for \"{}\" and no unk_token", word);
    out.resize(first);
    out.push_back(options_.unk_id);
  };
  if (options_.whole_words) {
    if (const auto id = vocabulary_->find(word)) out.push_back(*id);
    else give_up();
    return;
  }
  size_t n_chars = 0;
  for (const unsigned char b : word) n_chars += (b & 0xC0) != 0x80;
  if (n_chars > options_.max_input_chars_per_word) return give_up();
  const std::string& prefix = options_.continuing_subword_prefix;
  std::string candidate;
  for (size_t begin = 0; begin < word.size();) {
    candidate.assign(begin > 0 ? prefix : "");
    const size_t n_prefix = candidate.size();
    candidate.append(word.substr(begin, vocabulary_->longest_bytes()));
    while (candidate.size() > n_prefix) {
      if (const auto id = vocabulary_->find(candidate)) { out.push_back(*id); break; }
      candidate.pop_back();
    }
    if (candidate.size() == n_prefix) return give_up();
    begin += candidate.size() - n_prefix;
  }
}

void WordPiece::encode(std::vector<int32_t>& out, std::span<const Piece> pieces) const {
  size_t n_bytes = 0;
  for (const Piece& p : pieces) n_bytes += p.text.size();
  PieceCache cache(n_bytes);
  for (const Piece& piece : pieces) cache.append(out, piece.text, [&](std::string_view text, std::vector<int32_t>& ids) { encode_one(ids, text); });
}

std::string WordPiece::description() const { return fmt::format("{}, {} tokens", options_.whole_words ? "WordLevel" : "WordPiece", vocabulary_->n_tokens()); }

}  // namespace ridge
