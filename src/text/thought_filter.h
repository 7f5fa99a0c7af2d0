// A thought before an answer: while the model thinks, what restricts the answer (a grammar) waits; and a thought may have a budget of tokens, after which its end is
// written for the model. The marks of the thought are strings of the template's family; the begin must be one token for a thought that the model opens itself.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/token_filter.h"
#include "text/tokenizer.h"

namespace ridge {

struct Thought {
  std::string begin, end;                    // "<think>", "</think>"
  bool is_open = false;                      // the prompt ends inside a thought
  bool may_open = false;                     // the model may begin one as the first thing it writes
  int budget = -1;                           // tokens; -1: no limit
  std::vector<int32_t> endings = {};         // tokens that end an answer: not within the thought, where something must follow it
};

class ThoughtFilter : public TokenFilter {
 public:
  // `answer`: what restricts the text after the thought; may be null.
  ThoughtFilter(const Tokenizer& tokenizer, Thought thought, std::shared_ptr<TokenFilter> answer);
  [[nodiscard]] bool restrict(std::span<uint32_t> mask) override;
  void accept(int32_t token) override;
  bool done() const override { return state_ == State::answer && answer_ && answer_->done(); }

 private:
  enum class State : uint8_t { start, thinking, ending, answer };
  const Tokenizer& tokenizer_;
  Thought thought_;
  std::shared_ptr<TokenFilter> answer_;
  std::optional<int32_t> begin_;
  std::vector<int32_t> end_;                 // as written when the budget is spent
  State state_;
  int n_thought_ = 0, n_ended_ = 0;          // tokens of thought; of its end that were written
  std::string tail_;                         // the last bytes of the thought, where its end may lie across tokens
};

}  // namespace ridge
