#include "base/utf8.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

TEST(Utf8, InvalidBytesBecomeOneReplacementPerMaximalPart) {
  EXPECT_EQ(utf8::replace_invalid("a\xE2\x82z"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(utf8::replace_invalid("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(utf8::replace_invalid("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_TRUE(utf8::is_valid("h\xC3\xA9\xF0\x9F\x98\x80"));
}

TEST(Utf8, AnIncompleteCharacterAtTheEndIsHeldBack) {
  EXPECT_EQ(utf8::n_incomplete_at_end("ab\xF0\x9F\x98"), 3);
  EXPECT_EQ(utf8::n_incomplete_at_end("ab\xF0\x9F\x98\x80"), 0);
  EXPECT_EQ(utf8::n_incomplete_at_end("ab\xC3"), 1);
  EXPECT_EQ(utf8::n_incomplete_at_end("ab\xFF"), 0);
  EXPECT_EQ(utf8::n_incomplete_at_end(""), 0);
}

}  // namespace
}  // namespace ridge
