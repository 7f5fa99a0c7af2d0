// Streaming: the window's ids are decoded again with each new one, and what is longer than before is new. Held back are bytes that begin a character, and a
// run of <0xXX> tokens until it ends: one ill-formed byte would turn the whole run into U+FFFD. The window is cut behind when it has grown, keeping a few
// tokens as context, so that what a decoder does to the very first token is not done again.
#include <algorithm>
#include <bit>

#include "base/utf8.h"
#include "text/tokenizer.h"

namespace ridge {
namespace {

constexpr size_t kWindow = 16, kContext = 4;

bool is_byte_token(const Tokenizer& tokenizer, int32_t id) {
  const std::string name = tokenizer.token_name(id);
  return name.size() == 6 && name.starts_with("<0x") && name.back() == '>' && tokenizer.token_bytes(id).size() == 1;
}

std::string bytes_of(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special) {
  std::string out;
  for (const int32_t id : ids)
    if (!(skip_special && tokenizer.is_special(id))) out += tokenizer.token_bytes(id);
  return out;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens) : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string Detokenizer::push(int32_t id) {
  if (skip_special_tokens_ && tokenizer_->is_special(id)) return {};
  window_.push_back(id);
  if (is_byte_token(*tokenizer_, id)) return {};
  const std::string text = tokenizer_->decode(window_, skip_special_tokens_);
  const bool incomplete = utf8::n_incomplete_at_end(bytes_of(*tokenizer_, window_, skip_special_tokens_)) > 0 && text.ends_with("\uFFFD");
  const size_t certain = text.size() - (incomplete ? 3 : 0);
  std::string out;
  if (certain > n_emitted_) {
    out = text.substr(n_emitted_, certain - n_emitted_);
    n_emitted_ = certain;
  }
  // At 16, 32, 64, ... tokens: a window that cannot be cut (nothing but spaces, say) costs no more than twice its decoding.
  if (incomplete || window_.size() < kWindow || !std::has_single_bit(window_.size())) return out;
  const std::span<const int32_t> all(window_);
  for (size_t n = kContext; n < window_.size(); ++n) {
    const size_t begin = window_.size() - n;
    const std::string first = tokenizer_->token_bytes(window_[begin]);
    const bool has_substance = std::any_of(first.begin(), first.end(), [](char c) { return c != ' '; });
    if (!has_substance || is_byte_token(*tokenizer_, window_[begin])) continue;
    if (utf8::n_incomplete_at_end(bytes_of(*tokenizer_, all.first(begin), skip_special_tokens_)) > 0) continue;
    window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(begin));
    n_emitted_ = tokenizer_->decode(window_, skip_special_tokens_).size();
    break;
  }
  return out;
}

std::string Detokenizer::flush() {
  const std::string text = tokenizer_->decode(window_, skip_special_tokens_);
  std::string out = text.size() > n_emitted_ ? text.substr(n_emitted_) : "";
  window_.clear();
  n_emitted_ = 0;
  return out;
}

}  // namespace ridge
