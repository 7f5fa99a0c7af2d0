// Real checkpoints on `ref`, where ../shared has them: a safetensors model that carries tensors we do not use (an MTP module), and a quantized GGUF file.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "files/checkpoint.h"
#include "model/one_sequence.h"
#include "ref/ref_backend.h"

namespace ridge {
namespace {

const std::string kModels = RIDGE_SOURCE_DIR "/../shared/models/";

std::vector<int32_t> continue_greedily(const Checkpoint& checkpoint, const std::vector<int32_t>& prompt, size_t n) {
  const auto backend = make_ref_backend();
  const auto model = load_model(checkpoint, *backend, {.activations = FormatId::f32, .kv_format = FormatId::f32});
  test::OneSequence sequence(*model, *backend, static_cast<int>(prompt.size() + n));
  std::vector<int32_t> next = prompt, out;
  while (out.size() < n) {
    const std::vector<float> logits = sequence.run(next, 0);
    const auto last = logits.end() - model->n_vocab;
    next = {static_cast<int32_t>(std::max_element(last, logits.end()) - last)};
    out.push_back(next[0]);
  }
  return out;
}

TEST(Checkpoints, RidgeTinyContinuesAsItsReference) {
  if (!std::filesystem::exists(kModels + "ridge-tiny")) GTEST_SKIP() << "../shared/models/ridge-tiny is absent";
  const Checkpoint checkpoint = open_checkpoint(kModels + "ridge-tiny");
  const Json reference = read_json_file(kModels + "ridge-tiny/reference.json");
  const Json& greedy = reference["greedy"][0];
  std::vector<int32_t> expected = greedy["new_ids"];
  expected.resize(std::min<size_t>(expected.size(), 24));
  EXPECT_EQ(continue_greedily(checkpoint, greedy["prompt_ids"], expected.size()), expected);
}

TEST(Checkpoints, QuantizedGgufFileContinuesAStory) {
  if (!std::filesystem::exists(kModels + "stories15m")) GTEST_SKIP() << "../shared/models/stories15m is absent";
  const Checkpoint checkpoint = open_checkpoint(kModels + "stories15m/stories15m-Q8_0.gguf");
  const std::vector<int32_t> once_upon_a_time = {1, 9038, 2501, 263, 931};
  const std::vector<int32_t> there_was_a_little_girl_named_lily = {29892, 727, 471, 263, 2217, 7826, 4257, 365, 2354, 29889};
  EXPECT_EQ(continue_greedily(checkpoint, once_upon_a_time, 10), there_was_a_little_girl_named_lily);
}

}  // namespace
}  // namespace ridge
