#include "text/thought_filter.h"

#include <algorithm>

namespace ridge {

ThoughtFilter::ThoughtFilter(const Tokenizer& tokenizer, Thought thought, std::shared_ptr<TokenFilter> answer)
    : tokenizer_(tokenizer), thought_(std::move(thought)), answer_(std::move(answer)), end_(tokenizer.encode(thought_.end)) {
  if (thought_.may_open) begin_ = tokenizer.find(thought_.begin);
  state_ = thought_.is_open ? State::thinking : begin_ ? State::start : State::answer;
}

bool ThoughtFilter::restrict(std::span<uint32_t> mask) {
  if (state_ == State::thinking && thought_.budget >= 0 && n_thought_ >= thought_.budget && !end_.empty()) state_ = State::ending;
  if (state_ == State::thinking) {
    if (!answer_) return false;
    for (const int32_t token : thought_.endings)
      if (size_t(token) / 32 < mask.size()) mask[size_t(token) / 32] &= ~(1u << (token % 32));
    return !thought_.endings.empty();
  }
  if (state_ == State::ending) {
    std::fill(mask.begin(), mask.end(), 0u);
    mask[size_t(end_[n_ended_]) / 32] |= 1u << (end_[n_ended_] % 32);
    return true;
  }
  if (!answer_ || !answer_->restrict(mask)) return false;
  if (state_ == State::start) mask[size_t(*begin_) / 32] |= 1u << (*begin_ % 32);
  return true;
}

void ThoughtFilter::accept(int32_t token) {
  if (state_ == State::start) {
    state_ = token == *begin_ ? State::thinking : State::answer;
    if (state_ == State::thinking) return;
  }
  if (state_ == State::ending) {
    if (++n_ended_ == int(end_.size())) state_ = State::answer;
    return;
  }
  if (state_ == State::thinking) {
    n_thought_++;
    tail_ += tokenizer_.token_bytes(token);
    if (tail_.find(thought_.end) != std::string::npos) state_ = State::answer;
    else if (tail_.size() > thought_.end.size()) tail_.erase(0, tail_.size() - thought_.end.size());
    return;
  }
  if (answer_) answer_->accept(token);
}

}  // namespace ridge
