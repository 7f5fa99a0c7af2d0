// Recurrent layers over a real KV cache: tokens at once or one at a time, steps back and forks at any token give the same bits, in constant memory.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "cpu/cpu_backend.h"
#include "files/checkpoint.h"
#include "model/cached_sequences.h"

namespace ridge {
namespace {

constexpr int kLength = 200;

class Recurrent : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string folder = RIDGE_SOURCE_DIR "/tests/data/golden/" + std::string(GetParam());
    if (!std::filesystem::exists(folder + "/config.json")) folder = RIDGE_SOURCE_DIR "/../shared/golden/" + std::string(GetParam());
    if (!std::filesystem::exists(folder + "/config.json")) GTEST_SKIP() << GetParam() << " is not shipped and ../shared/golden is absent";
    checkpoint_ = open_checkpoint(folder);
    model_ = load_model(checkpoint_, *backend_, {.activations = FormatId::f32, .kv_format = FormatId::f32});
    sequences_ = std::make_unique<test::CachedSequences>(*model_, *backend_, kLength, 4096);
    for (int i = 0; i < kLength; ++i) tokens_.push_back(3 + i * 37 % (model_->n_vocab - 3));
    Track track;
    all_ = sequences_->run(track, tokens_);
    sequences_->cache().release(track);
  }

  std::span<const int32_t> tokens(int first, int n) const { return std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(n)); }
  std::span<const float> expected(int first, int n) const {
    return std::span(all_).subspan(static_cast<size_t>(first) * static_cast<size_t>(model_->n_vocab), static_cast<size_t>(n) * static_cast<size_t>(model_->n_vocab));
  }
  void expect_same(const std::vector<float>& got, int first, int n, const std::string& what) const {
    ASSERT_EQ(got.size(), expected(first, n).size());
    EXPECT_EQ(std::memcmp(got.data(), expected(first, n).data(), got.size() * 4), 0) << what;
  }

  std::unique_ptr<Backend> backend_ = make_cpu_backend({.n_threads = 2, .pin = false});
  Checkpoint checkpoint_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<test::CachedSequences> sequences_;
  std::vector<int32_t> tokens_;
  std::vector<float> all_;                   // logits of all tokens in one step
};

TEST_P(Recurrent, TokensOneAtATimeGiveTheBitsOfManyAtOnce) {
  Track track;
  for (int i = 0; i < kLength; ++i) expect_same(sequences_->run(track, tokens(i, 1)), i, 1, "token " + std::to_string(i));
}

TEST_P(Recurrent, ADraftThatIsRolledBackLeavesNoTrace) {
  const std::vector<int32_t> wrong(9, 7);
  for (const int at : {1, 5, 60, 63, 64, 65, 70, 127, 128, 129}) {
    Track track;
    sequences_->run(track, tokens(0, at));
    for (const int n : {1, 4, 9}) {
      sequences_->run(track, std::span(wrong).subspan(0, static_cast<size_t>(n)), false);
      track.n_computed = at;
    }
    expect_same(sequences_->run(track, tokens(at, 6)), at, 6, "rolled back to " + std::to_string(at));
    sequences_->cache().release(track);
  }
}

TEST_P(Recurrent, AForkAtAnyTokenGoesOnAsTheSequenceWould) {
  for (const int at : {1, 17, 63, 64, 65, 100, 128, 150}) {
    Track track, fork;
    sequences_->run(track, tokens(0, at));
    ASSERT_TRUE(sequences_->cache().fork(fork, track, at));
    sequences_->run(track, std::vector<int32_t>{9, 9, 9});
    expect_same(sequences_->run(fork, tokens(at, 10)), at, 10, "forked at " + std::to_string(at));
    sequences_->cache().check_integrity({&track, &fork});
    sequences_->cache().release(track);
    sequences_->cache().release(fork);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Recurrent, testing::Values("mamba_bias", "falcon_h1_multipliers", "minimax_factors", "olmo_hybrid_grouped", "kimi_linear_groups", "nemotron_h_moe", "mamba2",
                                                              "qwen3_5", "lfm2", "jamba"));

TEST(RecurrentMemory, PagesInUseAreConstant) {
  const std::string folder = RIDGE_SOURCE_DIR "/../shared/golden/mamba2";
  if (!std::filesystem::exists(folder + "/config.json")) GTEST_SKIP() << "../shared/golden/mamba2 is absent";
  const auto backend = make_cpu_backend({.n_threads = 2, .pin = false});
  const Checkpoint checkpoint = open_checkpoint(folder);
  const auto model = load_model(checkpoint, *backend, {});
  test::CachedSequences sequences(*model, *backend, 64, 1 << 14);
  KvCache& cache = sequences.cache();
  Track track;
  for (int i = 0; i < 600; ++i) {
    sequences.run(track, std::vector<int32_t>{3 + i % 50});
    for (int g = 0; g < cache.n_groups(); ++g) EXPECT_LE(cache.n_pages(g) - cache.n_free_pages(g), 2) << "group " << g << ", token " << i;
  }
}

}  // namespace
}  // namespace ridge
