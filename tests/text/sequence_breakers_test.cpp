// Strings that end a repetition, as tokens: every sequence that is found spells its string, and every token that holds one is found.
#include "text/sequence_breakers.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/tokenizer_data.h"

namespace ridge {
namespace {

TEST(SequenceBreakers, AreExactlyTheTokensThatHoldTheStringOrEndInItsBeginningWithTheRestBehindThem) {
  const auto tokenizer = test::shipped("byte_level");
  for (const std::string& s : {std::string("\n"), std::string(":"), std::string("the "), std::string("ing")}) {
    const SequenceBreakers found = find_sequence_breakers(*tokenizer, {s});
    int n_alone = 0, n_with_tail = 0;
    for (int32_t token = 0; token < tokenizer->n_vocab(); ++token) {
      const std::string text = tokenizer->token_bytes(token);
      const bool alone = text.find(s) != std::string::npos;
      std::vector<std::vector<int32_t>> expected;
      if (alone) expected = {{}};
      for (size_t n = 1; n < s.size() && !alone; ++n)
        if (text.ends_with(s.substr(0, n))) expected.push_back(tokenizer->encode(s.substr(n), false, false));
      const auto it = found.after.find(token);
      const std::vector<std::vector<int32_t>> got = it == found.after.end() ? std::vector<std::vector<int32_t>>{} : it->second;
      ASSERT_EQ(got, expected) << s << " after '" << text << "'";
      for (const std::vector<int32_t>& tail : got) {
        std::string whole = text;
        for (const int32_t t : tail) whole += tokenizer->token_bytes(t);
        EXPECT_NE(whole.find(s), std::string::npos) << whole;
        (tail.empty() ? n_alone : n_with_tail)++;
      }
    }
    EXPECT_GT(n_alone + n_with_tail, 0) << s;
    if (s.size() == 1) EXPECT_EQ(n_with_tail, 0);
  }
}

TEST(SequenceBreakers, SeveralStringsAreFoundTogetherAndImpossibleOnesRefused) {
  const auto tokenizer = test::shipped("byte_level");
  const SequenceBreakers both = find_sequence_breakers(*tokenizer, {":", "\n"}), one = find_sequence_breakers(*tokenizer, {":"}), other = find_sequence_breakers(*tokenizer, {"\n"});
  for (const auto& [token, tails] : both.after) EXPECT_TRUE(one.after.count(token) || other.after.count(token));
  for (const SequenceBreakers* single : {&one, &other})
    for (const auto& [token, tails] : single->after) EXPECT_TRUE(both.after.count(token));
  EXPECT_TRUE(find_sequence_breakers(*tokenizer, {}).after.empty());
  EXPECT_THROW(find_sequence_breakers(*tokenizer, {""}), Error);
  EXPECT_THROW(find_sequence_breakers(*tokenizer, {std::string(41, 'x')}), Error);
  EXPECT_THROW(find_sequence_breakers(*tokenizer, std::vector<std::string>(65, "x")), Error);
}

}  // namespace
}  // namespace ridge
