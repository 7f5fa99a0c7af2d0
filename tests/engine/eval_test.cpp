// Perplexity and logits against the obvious computation, and the file that `eval logits` writes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "engine/tiny_model.h"
#include "eval/logits.h"
#include "eval/perplexity.h"

namespace ridge {
namespace {

std::vector<int32_t> random_ids(int n) {
  std::mt19937 random(8);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = int32_t(random() % TinyModel::kVocab);
  return ids;
}

EngineOptions ref_options() {
  EngineOptions options{.device = "ref"};
  options.activations = FormatId::f32;
  return options;
}

TEST(Perplexity, IsTheMeanOverWindowsOfEveryTokenButTheFirst) {
  const TinyModel model;
  const std::vector<int32_t> ids = random_ids(24 * 5 + 11);
  Engine exact(model.checkpoint(), exact_options(ref_options(), 64));
  double nats = 0;
  for (int w = 0; w < 5; ++w) {
    const std::vector<int32_t> window(ids.begin() + w * 24, ids.begin() + (w + 1) * 24);
    const LogitsResult r = compute_logits(exact, {window}, 0).front();
    for (int t = 0; t + 1 < 24; ++t) {
      double sum = 0;
      for (int v = 0; v < r.n_vocab; ++v) sum += std::exp(double(r.logits[t * r.n_vocab + v]));
      nats -= r.logits[t * r.n_vocab + window[t + 1]] - std::log(sum);
    }
  }
  for (const int max_batch_tokens : {512, 10})
    for (const int max_seqs : {1, 3}) {
      EngineOptions options = ref_options();
      options.max_batch_tokens = max_batch_tokens, options.max_seqs = max_seqs;
      Engine engine(model.checkpoint(), scoring_options(options, 24));
      const Perplexity p = measure_perplexity(engine, ids, {.context = 24});
      EXPECT_NEAR(p.nats_per_token, nats / (5 * 23), 2e-7);                   // a token's logprob is a float
      EXPECT_NEAR(p.perplexity / std::exp(nats / (5 * 23)), 1, 2e-7);
      EXPECT_EQ(p.n_windows, 5);
      EXPECT_EQ(p.n_scored, 5 * 23);
      EXPECT_EQ(p.n_left_out, 11);
      const Perplexity two = measure_perplexity(engine, std::span(ids).first(48), {.context = 24});
      EXPECT_EQ(measure_perplexity(engine, ids, {.context = 24, .max_windows = 2}).perplexity, two.perplexity);
    }
}

TEST(Perplexity, AShortTextIsOneWindowAndATokenIsNone) {
  const TinyModel model;
  Engine engine(model.checkpoint(), scoring_options(ref_options(), 64));
  EXPECT_EQ(measure_perplexity(engine, random_ids(10), {.context = 64}).n_scored, 9);
  EXPECT_THROW(measure_perplexity(engine, random_ids(1), {.context = 64}), Error);
  EXPECT_THROW(measure_perplexity(engine, random_ids(100), {.context = 65}), Error);
  EXPECT_THROW(measure_perplexity(engine, random_ids(100), {.context = 1}), Error);
}

TEST(Logits, AreWrittenWithTheShapesTheyHave) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact_options(ref_options(), 64));
  const LogitsResult r = compute_logits(engine, {random_ids(9)}, 4).front();
  for (int v = 0; v < r.n_vocab; ++v) EXPECT_EQ(r.greedy_logits[v], r.logits[8 * r.n_vocab + v]);
  const std::string path = (std::filesystem::temp_directory_path() / ("ridge_logits_" + std::to_string(getpid()) + ".safetensors")).string();
  write_logits(path, r);
  {
    const auto file = open_safetensors_file(path);
    const StoredWeight logits = file->get("logits"), greedy = file->get("greedy"), greedy_logits = file->get("greedy_logits");
    EXPECT_EQ(logits.rows, 9);
    EXPECT_EQ(logits.cols, r.n_vocab);
    EXPECT_EQ(logits.codes.f32(8)[3], r.logits[8 * r.n_vocab + 3]);
    EXPECT_EQ(greedy.format, FormatId::i64);
    EXPECT_EQ(greedy.cols, 4);
    EXPECT_EQ(greedy.codes.row_as<int64_t>(0)[3], r.greedy[3]);
    EXPECT_EQ(greedy_logits.rows, 4);
    EXPECT_EQ(greedy_logits.codes.f32(3)[5], r.greedy_logits[3 * r.n_vocab + 5]);
  }
  std::filesystem::remove(path);
}

TEST(Logits, IdsMustBeAListOfTokens) {
  const std::string path = (std::filesystem::temp_directory_path() / ("ridge_ids_" + std::to_string(getpid()) + ".json")).string();
  write_file(path, "[1, 2, 3]");
  EXPECT_EQ(read_ids(path), (std::vector<int32_t>{1, 2, 3}));
  for (const char* bad : {"[]", "{}", "[1, -2]", "[1.5]", "[\"a\"]", "[99999999999]", "[1"}) {
    write_file(path, bad);
    EXPECT_THROW(read_ids(path), Error) << bad;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace ridge
