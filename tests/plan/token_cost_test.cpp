// A config.json alone says what a token costs. The figures are those that the published models are known by.
#include "plan/token_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "files/hf_config.h"
#include "plan/dry_backend.h"
#include "plan/promised_weights.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

TokenCost cost_of(const std::string& config, FormatId weights = FormatId::unknown, int context = 4096, int batch = 1) {
  Checkpoint c{.name = config, .config = normalize_config(read_json_file(config), config)};
  promise_weights(c, weights);
  DryBackend dry;
  return cost_of_token(*load_model(c, dry, {}), context, batch);
}

std::string published(const std::string& name) { return RIDGE_SOURCE_DIR "/tests/data/configs/" + name + ".json"; }

double component(const TokenCost& cost, std::string_view name) {
  for (const ComponentCost& c : cost.components)
    if (c.component == name) return c.bytes_per_token;
  return -1;
}

TEST(TokenCost, Qwen3Of8BillionParameters) {
  const TokenCost cost = cost_of(published("qwen3-8b"));
  EXPECT_EQ(cost.kv_bytes_per_token, 147456);
  EXPECT_NEAR(double(cost.n_params), 8.19e9, 0.005e9);
  EXPECT_NEAR(double(cost.weight_bytes), 16.4e9, 0.05e9);
  EXPECT_EQ(cost.n_params, cost.n_active);
  EXPECT_EQ(cost.n_params - cost.n_streamed, int64_t{151936} * 4096);             // a token reads one row of the embedding
  EXPECT_EQ(cost.kv_per_token, 147456.0 * 4096);
}

TEST(TokenCost, Llama3Of70BillionParameters) {
  const TokenCost cost = cost_of(published("llama-3-70b"));
  EXPECT_EQ(cost.kv_bytes_per_token, 327680);
  EXPECT_NEAR(double(cost.n_params), 70.6e9, 0.05e9);
}

TEST(TokenCost, AMixtureStreamsTheExpertsOfAToken) {
  const TokenCost cost = cost_of(published("qwen3-30b-a3b"), FormatId::q4_0);
  EXPECT_NEAR(double(cost.n_params), 30.5e9, 0.05e9);
  EXPECT_NEAR(double(cost.n_active), 3.35e9, 0.005e9);
  EXPECT_NEAR(double(cost.n_streamed), 3.04e9, 0.005e9);
  EXPECT_NEAR(cost.weights_per_token, 1.7e9, 0.05e9);
}

TEST(TokenCost, ABatchSharesWhatItsTokensChoose) {
  const TokenCost one = cost_of(published("qwen3-30b-a3b"), FormatId::q4_0), many = cost_of(published("qwen3-30b-a3b"), FormatId::q4_0, 4096, 8);
  const double touched = 1 - std::pow(1 - 8.0 / 128, 8);
  EXPECT_NEAR(component(many, "experts") * 8 / touched, component(one, "experts") * 16, 1e6);
  EXPECT_NEAR(component(many, "attention") * 8, component(one, "attention"), 1);
  EXPECT_EQ(many.kv_per_token, one.kv_per_token);
}

TEST(TokenCost, LatentAttentionKeepsTheLatentAndTheRotatedPart) {
  const TokenCost cost = cost_of(published("deepseek-v3"));
  EXPECT_EQ(cost.kv_bytes_per_token, 61 * (512 + 64) * 2);                        // 70 kB
  EXPECT_NEAR(double(cost.n_params), 671e9, 1e9);
  EXPECT_NEAR(double(cost.n_active), 37.5e9, 0.5e9);
}

TEST(TokenCost, AWindowBoundsWhatIsReadAndHeld) {
  Json config = read_json_file(published("qwen3-8b"));
  config["use_sliding_window"] = true;
  config["sliding_window"] = 1024;
  config["max_window_layers"] = 18;
  Checkpoint c{.name = "windows", .config = normalize_config(config, "windows")};
  promise_weights(c);
  DryBackend dry;
  const TokenCost cost = cost_of_token(*load_model(c, dry, {}), 16384, 1);
  ASSERT_EQ(cost.kv_groups.size(), 2u);
  EXPECT_EQ(cost.kv_groups[0].bytes_held, 16 * cost.kv_groups[1].bytes_held);
  EXPECT_EQ(cost.kv_per_token, 18.0 * 4096 * (16384 + 1024));
}

// The same code that runs a model counts it: what a config promises is what its checkpoint holds.
TEST(TokenCost, ConfigsAloneCountLikeTheirCheckpoints) {
  const fs::path golden = RIDGE_SOURCE_DIR "/../shared/golden";
  if (!fs::is_directory(golden)) GTEST_SKIP() << "no golden checkpoints beside the project";
  int n_compared = 0;
  for (const auto& entry : fs::directory_iterator(golden)) {
    SCOPED_TRACE(entry.path().filename().string());
    DryBackend dry;
    const Checkpoint whole = open_checkpoint(entry.path().string());
    const TokenCost promised = cost_of((entry.path() / "config.json").string()), held = cost_of_token(*load_model(whole, dry, {}), 4096, 1);
    EXPECT_NEAR(double(promised.n_params), double(held.n_params), 1e-3 * double(held.n_params));
    EXPECT_EQ(promised.kv_bytes_per_token, held.kv_bytes_per_token);
    ++n_compared;
  }
  EXPECT_GT(n_compared, 0);
}

}  // namespace
}  // namespace ridge
