// Whole models on `ref` against Hugging Face's float32 outputs: golden.safetensors of each case has prompt [T], logits [T, V], greedy [G] and greedy_logits [G, V].
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "files/checkpoint.h"
#include "model/one_sequence.h"
#include "ref/ref_backend.h"

namespace ridge {
namespace {

constexpr float kTolerance = 2e-3f;

struct Golden {
  std::vector<int32_t> prompt, greedy;
  std::vector<float> logits, greedy_logits;
};

std::vector<int32_t> read_ids(const WeightFile& file, const char* name) {
  const StoredWeight w = file.get(name);
  CHECK(w.codes.format == FormatId::i64);
  const auto* values = w.codes.row_as<int64_t>(0);
  return {values, values + w.rows * w.cols};
}

std::vector<float> read_floats(const WeightFile& file, const char* name) {
  const StoredWeight w = file.get(name);
  std::vector<float> out(static_cast<size_t>(w.rows * w.cols));
  for (int64_t r = 0; r < w.rows; r++) decode_stored_row(out.data() + r * w.cols, w, r);
  return out;
}

Golden read_golden(const std::string& folder) {
  const auto file = open_safetensors_file(folder + "/golden.safetensors");
  return {read_ids(*file, "prompt"), read_ids(*file, "greedy"), read_floats(*file, "logits"), read_floats(*file, "greedy_logits")};
}

// Shipped with the project, or in the shared folder beside it.
std::string find_case(const std::string& name) {
  for (const char* root : {"/tests/data/golden/", "/../shared/golden/"})
    if (const std::string folder = RIDGE_SOURCE_DIR + std::string(root) + name; std::filesystem::exists(folder + "/golden.safetensors")) return folder;
  return "";
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
  float largest = 0;
  for (size_t i = 0; i < a.size(); i++) largest = std::isfinite(a[i]) ? std::max(largest, std::fabs(a[i] - b[i])) : INFINITY;
  return largest;
}

class GoldenCase : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder = find_case(GetParam());
    if (folder.empty()) GTEST_SKIP() << "golden case " << GetParam() << " is not shipped and ../shared/golden is absent";
    golden_ = read_golden(folder);
    checkpoint_ = open_checkpoint(folder);
    model_ = load_model(checkpoint_, *backend_, {.activations = FormatId::f32, .kv_format = FormatId::f32, .rope_dynamic_exact = true});
    sequence_ = std::make_unique<test::OneSequence>(*model_, *backend_, static_cast<int>(golden_.prompt.size() + golden_.greedy.size()));
  }

  std::unique_ptr<Backend> backend_ = make_ref_backend();
  Golden golden_;
  Checkpoint checkpoint_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<test::OneSequence> sequence_;
};

TEST_P(GoldenCase, PromptLogitsAreThoseOfHuggingFace) {
  const std::vector<float> logits = sequence_->run(golden_.prompt, model_->rope_class(static_cast<int>(golden_.prompt.size())));
  ASSERT_EQ(logits.size(), golden_.logits.size());
  const float difference = largest_difference(logits, golden_.logits);
  RecordProperty("largest_difference", std::to_string(difference));
  EXPECT_LT(difference, kTolerance);
}

TEST_P(GoldenCase, GreedyContinuationIsThatOfHuggingFaceAlsoWhereRotaryAnglesChange) {
  std::vector<int32_t> known = golden_.prompt;
  const auto n_vocab = static_cast<size_t>(model_->n_vocab);
  int rope_class = model_->rope_class(static_cast<int>(known.size()));
  float difference = 0;
  for (size_t g = 0; g < golden_.greedy.size(); g++) {
    if (const int now = model_->rope_class(static_cast<int>(known.size())); now != rope_class) {
      rope_class = now;
      sequence_->forget();
    }
    const std::span<const int32_t> missing = std::span(known).subspan(static_cast<size_t>(sequence_->n_computed()));
    const std::vector<float> logits = sequence_->run(missing, rope_class);
    const std::span<const float> last = std::span(logits).last(n_vocab);
    const auto token = static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin());
    ASSERT_EQ(token, golden_.greedy[g]) << "at greedy token " << g;
    difference = std::max(difference, largest_difference(last, std::span(golden_.greedy_logits).subspan(g * n_vocab, n_vocab)));
    known.push_back(token);
  }
  RecordProperty("largest_difference", std::to_string(difference));
  EXPECT_LT(difference, kTolerance);
}

TEST_P(GoldenCase, ChunkedPromptGivesTheSameBits) {
  const int rope_class = model_->rope_class(static_cast<int>(golden_.prompt.size()));
  const std::vector<float> whole = sequence_->run(golden_.prompt, rope_class);
  sequence_->forget();
  std::vector<float> chunked;
  for (const auto& [first, n] : {std::pair<size_t, size_t>{0, 1}, {1, 30}, {31, 17}, {48, golden_.prompt.size() - 48}}) {
    const std::vector<float> part = sequence_->run(std::span(golden_.prompt).subspan(first, n), rope_class);
    chunked.insert(chunked.end(), part.begin(), part.end());
  }
  EXPECT_EQ(whole, chunked);
}

// The last block leaves out what no logits are made of.
TEST_P(GoldenCase, LogitsOfSomeRowsAreTheBitsOfThoseRows) {
  const int rope_class = model_->rope_class(static_cast<int>(golden_.prompt.size()));
  const auto n_vocab = static_cast<size_t>(model_->n_vocab);
  const std::span<const int32_t> prompt(golden_.prompt);
  const std::vector<float> whole = sequence_->run(prompt, rope_class);
  sequence_->forget();
  EXPECT_TRUE(sequence_->run(prompt.first(5), rope_class, 0).empty());
  const std::vector<float> some = sequence_->run(prompt.subspan(5), rope_class, 7);
  ASSERT_EQ(some.size() / n_vocab, (prompt.size() - 5 + 6) / 7);
  for (size_t i = 0; i < some.size() / n_vocab; ++i)
    EXPECT_TRUE(std::ranges::equal(std::span(some).subspan(i * n_vocab, n_vocab), std::span(whole).subspan((5 + 7 * i) * n_vocab, n_vocab))) << "row " << i;
}

INSTANTIATE_TEST_SUITE_P(Dense, GoldenCase,
                         testing::Values("llama", "llama3_rope", "llama_linear", "llama_dynamic", "llama_dynamic_cross", "llama_yarn", "llama_tied_gqa1", "phi3",
                                         "phi3_longrope", "phi3_longrope_cross", "mistral_swa", "qwen2", "qwen3", "gpt2", "starcoder2", "olmo2", "olmo3", "smollm3", "granite",
                                         "gemma", "gemma2", "gemma3", "gemma4", "cohere2", "ernie4_5", "exaone4", "glm4", "gpt_neox", "hunyuan_dense", "ministral3", "phi",
                                         "seed_oss", "stablelm", "gemma4_shared_kv", "gemma4_keys_as_values", "gpt_neox_sequential", "hunyuan_alpha", "ministral3_temperature",
                                         "phi_qk_norm", "stablelm_qk_norm_parallel"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Mixtures, GoldenCase, testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2", "dots1", "gpt_oss", "llama4"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ridge
