// Running ahead with every kind of layer there is, and on a GPU: rows that were computed too early, or for nothing, leave no trace.
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "cuda/cuda_backend.h"
#include "engine/run_ahead.h"

namespace ridge {
namespace {

class RunAheadOf : public testing::TestWithParam<std::pair<std::string, std::string>> {          // (device, model)
 protected:
  void SetUp() override {
    const auto& [device, name] = GetParam();
    std::string folder;
    for (const char* root : {RIDGE_SOURCE_DIR "/tests/data/golden/", RIDGE_SOURCE_DIR "/../shared/golden/"})
      if (folder.empty() && std::filesystem::is_directory(root + name)) folder = root + name;
    if (folder.empty()) GTEST_SKIP() << "no golden checkpoint " << name << " beside the project";
    if (const std::string reason = device == "cuda" ? cuda_unavailable_reason() : ""; !reason.empty()) GTEST_SKIP() << reason;
    set_log_level(LogLevel::error);
    checkpoint = open_checkpoint(folder);
    o.device = device;
    o.n_threads = 1;
    if (device == "cpu") o.activations = FormatId::f32;
    o.max_seqs = 8;
    o.max_batch_tokens = 128;
    o.page_size = 16;
    o.max_context = 160;
    o.kv_bytes = int64_t{1} << 28;
    o.prefix_cache = true;
  }
  void TearDown() override { set_log_level(LogLevel::info); }

  Checkpoint checkpoint;
  EngineOptions o;
};

TEST_P(RunAheadOf, ARealFamily) {
  o.run_ahead = false;
  Engine alone(checkpoint, o);
  std::mt19937 random(9);
  std::vector<Request> requests, next;
  for (int i = 0; i < 7; ++i) requests.push_back(greedy(text_of(random, 40 + 5 * i, alone.model().n_vocab), 40));
  for (size_t i = 0; i < requests.size(); i += 3) requests[i].params.temperature = 0.8f, requests[i].params.top_k = 40, requests[i].params.top_p = 0.95f, requests[i].params.seed = i;
  const Seen whole = serve(alone, at_once(requests));
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<int32_t>& answer = whole.tokens.at(i + 1);
    next.push_back(greedy(requests[i].prompt, 10));
    next.back().prompt.insert(next.back().prompt.end(), answer.begin(), answer.begin() + 30);
    if (i < 5) requests[i] = stopped(requests[i], answer, 5 + 5 * i);
  }
  bool is_second = false;
  const BothWays both = expect_the_same(checkpoint, o, [&](Engine& engine, int n_steps) {
    if (n_steps == 0) is_second = false;
    if (n_steps == 0) at_once(requests)(engine, 0);
    else if (engine.idle() && !std::exchange(is_second, true)) at_once(next)(engine, 0);
  }, GetParam().second);
  EXPECT_GT(both.ahead_stats.n_ahead, 20);
}

TEST_P(RunAheadOf, WithPenalties) {
  o.max_seqs = 12;
  o.run_ahead = false;
  Engine plain(checkpoint, o);
  std::mt19937 random(12);
  const std::vector<Request> requests = with_penalties(random, plain.model().n_vocab);
  const BothWays both = expect_the_same(checkpoint, o, at_once(requests), "all of them");
  EXPECT_GT(both.ahead_stats.n_ahead, 20);
  for (const size_t i : {8u, 9u}) {
    const BothWays alone = expect_the_same(checkpoint, o, at_once({requests[i]}), "alone");
    EXPECT_GT(alone.ahead_stats.n_ahead, 20);
    EXPECT_EQ(alone.ahead.tokens.at(1), both.plain.tokens.at(i + 1));
  }
  o.run_ahead = true;
  Engine ahead(checkpoint, o);
  EXPECT_EQ(serve(ahead, [&](Engine& engine, int n_steps) {
    at_once(requests)(engine, n_steps);
    if (n_steps % 5 == 4) engine.preempt(1 + uint64_t(n_steps) % requests.size());
  }).tokens, both.plain.tokens) << "preempted";
  EXPECT_GT(ahead.stats().n_preemptions, 3);
}

TEST_P(RunAheadOf, WithDraws) {
  o.max_seqs = 12;
  o.run_ahead = false;
  const int n_vocab = Engine(checkpoint, o).model().n_vocab;
  for (const bool with_masks : {false, true}) {
    const auto asked = [&](Engine& engine, int n_steps) {
      if (n_steps == 0) at_once(with_draws(n_vocab, with_masks))(engine, 0);
    };
    const BothWays both = expect_the_same(checkpoint, o, asked, with_masks ? "masked" : "drawn");
    if (!with_masks) EXPECT_GT(both.ahead_stats.n_ahead, 20);
    EXPECT_LT(both.ahead_stats.n_left_open, 40) << "of four hundred";
    o.run_ahead = true;
    Engine ahead(checkpoint, o);
    EXPECT_EQ(serve(ahead, [&](Engine& engine, int n_steps) {
      asked(engine, n_steps);
      if (n_steps % 5 == 4) engine.preempt(1 + uint64_t(n_steps) % 12);
    }).tokens, both.plain.tokens) << "preempted";
    EXPECT_GT(ahead.stats().n_preemptions, 3);
  }
}

std::vector<std::pair<std::string, std::string>> families(const std::string& device, const std::vector<std::string>& models) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& model : models) all.emplace_back(device, model);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, RunAheadOf, testing::ValuesIn(families("cpu", {"llama", "mistral_swa", "gemma3", "qwen3_next", "lfm2", "deepseek_v3"})), [](const auto& info) { return info.param.second; });
INSTANTIATE_TEST_SUITE_P(Cuda, RunAheadOf, testing::ValuesIn(families("cuda", {"llama", "qwen3", "mistral_swa", "gemma3", "gemma4_shared_kv", "phi3_longrope_cross"})), [](const auto& info) { return info.param.second; });

}  // namespace
}  // namespace ridge
