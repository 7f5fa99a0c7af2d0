// A stream of ids becomes the same text as all of them at once, in pieces that are whole characters.
#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "text/tokenizer_data.h"

namespace ridge {
namespace {

void expect_streams(const Tokenizer& t, const std::vector<int32_t>& ids, bool skip_special) {
  Detokenizer stream(t, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = stream.push(id);
    EXPECT_TRUE(utf8::is_valid(part));
    text += part;
  }
  text += stream.flush();
  EXPECT_EQ(text, t.decode(ids, skip_special)) << Json(ids);
}

TEST(Detokenizer, StreamsWhatDecodeSays) {
  for (const std::string& name : test::shipped_names()) {
    SCOPED_TRACE(name);
    const auto t = test::shipped(name);
    std::vector<int32_t> all;
    for (const Json& c : test::read_jsonl(test::data_path(name + ".expected.jsonl"))) {
      const auto ids = c["special_ids"].get<std::vector<int32_t>>();
      expect_streams(*t, ids, false);
      expect_streams(*t, ids, true);
      all.insert(all.end(), ids.begin(), ids.end());
    }
    expect_streams(*t, all, false);
    expect_streams(*t, all, true);
  }
}

TEST(Detokenizer, RandomIdsNeverSplitACharacter) {
  std::mt19937 random(11);
  for (const std::string& name : test::shipped_names()) {
    SCOPED_TRACE(name);
    const auto t = test::shipped(name);
    for (int round = 0; round < 40; ++round) {
      std::vector<int32_t> ids(random() % 120);
      // Low ids: bytes in these vocabularies, so that most sequences are ill-formed.
      const int limit = round % 2 ? std::min(t->n_vocab(), 270) : t->n_vocab();
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % limit);
      expect_streams(*t, ids, round % 3 == 0);
    }
  }
}

TEST(Detokenizer, TextAppearsAsSoonAsItIsCertain) {
  const auto t = test::shipped("byte_level");
  const std::string text = "Hi 👩‍👩‍👧‍👦 you";
  Detokenizer stream(*t);
  std::string sofar;
  std::string bytes;
  for (const int32_t id : t->encode(text)) {
    sofar += stream.push(id);
    bytes += t->token_bytes(id);
    EXPECT_EQ(sofar, bytes.substr(0, bytes.size() - utf8::n_incomplete_at_end(bytes)));
  }
  EXPECT_EQ(stream.flush(), "");
}

TEST(Detokenizer, AnIncompleteTailIsReplacedAtTheEnd) {
  const auto t = test::shipped("byte_level");
  auto ids = t->encode("ok 🚀");
  ids.pop_back();
  Detokenizer stream(*t);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  EXPECT_EQ(text, "ok ");
  EXPECT_EQ(stream.flush(), "\uFFFD");
}

}  // namespace
}  // namespace ridge
