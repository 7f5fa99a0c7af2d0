#include "text/thought_filter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/tokenizer_of.h"

namespace ridge {
namespace {

const Tokenizer& tiny_tokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(open_checkpoint(RIDGE_SOURCE_DIR "/models/ridge-tiny", false));
  return *tokenizer;
}

// A filter that allows one token, then is done.
class OneToken : public TokenFilter {
 public:
  explicit OneToken(int32_t token) : token_(token) {}
  bool restrict(std::span<uint32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0u);
    if (!done_) mask[size_t(token_) / 32] = 1u << (token_ % 32);
    return true;
  }
  void accept(int32_t) override { done_ = true; }
  bool done() const override { return done_; }

 private:
  int32_t token_;
  bool done_ = false;
};

int n_allowed(TokenFilter& filter, int n_vocab) {
  std::vector<uint32_t> mask(size_t(n_vocab + 31) / 32, ~0u);
  if (!filter.restrict(mask)) return n_vocab;
  int n = 0;
  for (const uint32_t word : mask) n += __builtin_popcount(word);
  return n;
}

TEST(ThoughtFilter, AThoughtIsFreeUntilItsBudgetAndTheAnswerIsNot) {
  const Tokenizer& tokenizer = tiny_tokenizer();
  const int n_vocab = tokenizer.n_vocab();
  const int32_t word = tokenizer.encode("sea").at(0), end = *tokenizer.find("</think>");
  ThoughtFilter filter(tokenizer, {.begin = "<think>", .end = "</think>", .is_open = true, .budget = 3}, std::make_shared<OneToken>(word));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(n_allowed(filter, n_vocab), n_vocab);
    filter.accept(word);
  }
  EXPECT_EQ(n_allowed(filter, n_vocab), 1);
  filter.accept(end);
  EXPECT_EQ(n_allowed(filter, n_vocab), 1);
  EXPECT_FALSE(filter.done());
  filter.accept(word);
  EXPECT_TRUE(filter.done());
}

TEST(ThoughtFilter, AThoughtDoesNotEndAnAnswerThatMustFollow) {
  const Tokenizer& tokenizer = tiny_tokenizer();
  const int n_vocab = tokenizer.n_vocab();
  const int32_t end = *tokenizer.find("<|im_end|>");
  ThoughtFilter waits(tokenizer, {.begin = "<think>", .end = "</think>", .is_open = true, .endings = {end}}, std::make_shared<OneToken>(9));
  std::vector<uint32_t> mask(size_t(n_vocab + 31) / 32, ~0u);
  EXPECT_TRUE(waits.restrict(mask));
  EXPECT_EQ(mask[size_t(end) / 32] >> (end % 32) & 1, 0u);
  EXPECT_EQ(n_allowed(waits, n_vocab), n_vocab - 1);
  ThoughtFilter free(tokenizer, {.begin = "<think>", .end = "</think>", .is_open = true, .endings = {end}}, nullptr);
  EXPECT_EQ(n_allowed(free, n_vocab), n_vocab);
}

TEST(ThoughtFilter, AModelMayBeginAThoughtOrAnswerAtOnce) {
  const Tokenizer& tokenizer = tiny_tokenizer();
  const int n_vocab = tokenizer.n_vocab();
  const int32_t word = tokenizer.encode("sea").at(0), begin = *tokenizer.find("<think>"), end = *tokenizer.find("</think>");
  const Thought thought{.begin = "<think>", .end = "</think>", .may_open = true};
  ThoughtFilter thinks(tokenizer, thought, std::make_shared<OneToken>(word)), answers(tokenizer, thought, std::make_shared<OneToken>(word));
  EXPECT_EQ(n_allowed(thinks, n_vocab), 2);
  thinks.accept(begin);
  EXPECT_EQ(n_allowed(thinks, n_vocab), n_vocab);
  thinks.accept(end);
  EXPECT_EQ(n_allowed(thinks, n_vocab), 1);
  EXPECT_EQ(n_allowed(answers, n_vocab), 2);
  answers.accept(word);
  EXPECT_TRUE(answers.done());
}

}  // namespace
}  // namespace ridge
