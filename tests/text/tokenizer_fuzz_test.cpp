// Mutated tokenizer.json files and random texts, for a bounded time from a fixed seed: each either works or is an Error.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer_data.h"

namespace ridge {
namespace {

constexpr auto kTime = std::chrono::milliseconds(3000);

std::string random_text(std::mt19937& random) {
  std::string text;
  for (size_t n = random() % 80; n > 0; --n) {
    switch (random() % 6) {
      case 0: text += static_cast<char>(random() % 256); break;
      case 1: utf8::append(text, 0x80 + random() % 0x3000); break;
      case 2: utf8::append(text, 0x1F000 + random() % 0x1000); break;
      case 3: text += " "; break;
      case 4: text += std::array{"<s>", "[MASK]", "<special>", "the", "\u2581", "12", "'s", "\n"}[random() % 8]; break;
      default: text += static_cast<char>('a' + random() % 26); break;
    }
  }
  return text;
}

// Changes in the small part (everything but the vocabulary) are the interesting ones: words of the format are exchanged and numbers and bytes disturbed.
std::string mutated(std::string json, std::mt19937& random) {
  static const std::vector<std::string> words{"null", "true", "false", "-1", "0", "99999999999999999999", "1e400", "{}", "[]", "\"\"", "\"NFC\"", "\"Sequence\"", "\"ByteLevel\"", "\"Metaspace\"",
                                              "\"Split\"", "\"Removed\"", "\"Contiguous\"", "\"MergedWithNext\"", "\"Unigram\"", "\"BPE\"", "\"WordPiece\"", "\"WordLevel\"", "\"Replace\"", "\"Strip\"",
                                              "\"ByteFallback\"", "\"(a|b)*?(?=\\\\s)|\\\\K\"", "\"[^\\\\p{L}&&[a-z]]{2,3}+\"", "\"type\"", "\"vocab\"", "\"merges\"", ",", ":", "}", "]"};
  for (size_t n = 1 + random() % 4; n > 0; --n) {
    const size_t model = std::min(json.size(), json.find("\"vocab\"") + 60);
    const size_t at = random() % (random() % 8 ? std::max<size_t>(model, 1) : json.size() + 1);
    switch (random() % 5) {
      case 0: if (at < json.size()) json[at] = static_cast<char>(random() % 256); break;
      case 1: json.erase(at, random() % 8); break;
      case 2: json.insert(at, words[random() % words.size()]); break;
      default: {
        // A whole value: from the colon after `at` to the next comma or bracket.
        const size_t colon = json.find(':', at);
        if (colon == std::string::npos) break;
        const size_t end = json.find_first_of(",}]", colon);
        if (end != std::string::npos) json.replace(colon + 1, end - colon - 1, words[random() % words.size()]);
      }
    }
  }
  return json;
}

TEST(TokenizerFuzz, MutatedFilesWorkOrAreRefused) {
  std::vector<std::string> seeds;
  for (const std::string& name : test::shipped_names()) seeds.push_back(read_file(test::data_path(name + ".json")));
  std::mt19937 random(20240);
  int n_loaded = 0, n_refused = 0;
  for (const auto end = std::chrono::steady_clock::now() + kTime; std::chrono::steady_clock::now() < end;) {
    const std::string json = mutated(seeds[random() % seeds.size()], random);
    try {
      const auto t = Tokenizer::from_json(json, "fuzz");
      ++n_loaded;
      for (int i = 0; i < 3; ++i) {
        const auto ids = t->encode(random_text(random), random() % 2, random() % 2);
        for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && id < t->n_vocab()) << id;
        t->decode(ids, random() % 2);
        Detokenizer stream(*t);
        for (const int32_t id : ids) stream.push(id);
        stream.flush();
      }
    } catch (const Error&) {
      ++n_refused;
    }
  }
  EXPECT_GT(n_loaded, 0);
  EXPECT_GT(n_refused, 0);
}

TEST(TokenizerFuzz, RandomTextsEncodeToIdsOfTheVocabulary) {
  std::mt19937 random(5);
  for (const std::string& name : test::shipped_names()) {
    const auto t = test::shipped(name);
    for (int i = 0; i < 300; ++i) {
      const std::string text = random_text(random);
      const auto ids = t->encode(text);
      for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && id < t->n_vocab());
      EXPECT_EQ(ids, t->encode(utf8::replace_invalid(text)));
    }
  }
}

}  // namespace
}  // namespace ridge
