// What latent attention keeps: one vector of kv_lora_rank + qk_rope_head_dim numbers a token and layer, whatever the number of heads.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/engine.h"

namespace ridge {
namespace {

const std::string kLatentModels = RIDGE_SOURCE_DIR "/../shared/golden/";

int64_t numbers_per_token(const KvCache& kv, int group) {
  int64_t n = 0;
  for (const KvPlane& plane : kv.spec(group).planes) n += int64_t{plane.n_heads} * plane.head_dim / plane.every;
  return n;
}

TEST(LatentKv, DeepseekV3KeepsTheLatentAndTheRotatedPartOfATokenAndLayer) {
  if (!std::filesystem::is_directory(kLatentModels + "deepseek_v3")) GTEST_SKIP() << "no golden checkpoint deepseek_v3 beside the project";
  const Checkpoint checkpoint = open_checkpoint(kLatentModels + "deepseek_v3");
  const Json& config = checkpoint.config;
  const int64_t wanted = config["kv_lora_rank"].get<int64_t>() + config["qk_rope_head_dim"].get<int64_t>(), n_layers = config["num_hidden_layers"].get<int64_t>();
  Engine engine(checkpoint, {.device = "cpu", .max_context = 128, .max_seqs = 1, .max_batch_tokens = 16});
  ASSERT_EQ(engine.kv().n_groups(), 1);
  EXPECT_EQ(numbers_per_token(engine.kv(), 0), wanted);
  EXPECT_EQ(engine.kv().bytes_per_token(), n_layers * row_bytes(engine.kv().spec(0).planes[0].format, wanted));
}

TEST(LatentKv, SparseAttentionAddsOneIndexKey) {
  if (!std::filesystem::is_directory(kLatentModels + "deepseek_v32")) GTEST_SKIP() << "no golden checkpoint deepseek_v32 beside the project";
  const Checkpoint checkpoint = open_checkpoint(kLatentModels + "deepseek_v32");
  const Json& config = checkpoint.config;
  Engine engine(checkpoint, {.device = "cpu", .max_context = 128, .max_seqs = 1, .max_batch_tokens = 16});
  EXPECT_EQ(numbers_per_token(engine.kv(), 0),
            config["kv_lora_rank"].get<int64_t>() + config["qk_rope_head_dim"].get<int64_t>() + config["index_head_dim"].get<int64_t>());
}

}  // namespace
}  // namespace ridge
