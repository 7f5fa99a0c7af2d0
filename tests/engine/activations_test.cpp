// Which arithmetic quantized weights get: what was asked for, and otherwise the finer one in a small model.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "cpu/cpu_backend.h"
#include "engine/compatibility.h"
#include "engine/engine.h"
#include "engine/tiny_model.h"
#include "files/gguf_writer.h"

namespace ridge {
namespace {

// The tiny model in q8_0, as a GGUF file beside the original.
class Activations : public testing::Test {
 protected:
  Activations() {
    std::vector<TensorSource> sources;
    const WeightFile& file = *plain_.checkpoint().weights;
    for (const TensorInfo& info : file.tensors()) sources.push_back(converted(file, info, FormatId::q8_0));
    path_ = plain_.checkpoint().path + "/tiny.gguf";
    write_gguf_model(path_, plain_.checkpoint().config, {{"general.name", "tiny"}}, sources);
    quantized_ = open_checkpoint(path_);
  }

  static std::string used(const Checkpoint& checkpoint, FormatId asked_for) {
    EngineOptions options{.device = "cpu", .n_threads = 1};
    options.activations = asked_for;
    options.max_context = 64;
    const Engine engine(checkpoint, options);
    return activations_text(engine.options().activations, engine.model());
  }

  TinyModel plain_;
  std::string path_;
  Checkpoint quantized_;
};

// A file that also lists a quantized tensor of a given size, which no model asks for.
class Larger : public WeightFile {
 public:
  Larger(std::unique_ptr<WeightFile> inner, uint64_t n_params) : inner_(std::move(inner)), tensors_(inner_->tensors()) {
    tensors_.push_back({"tower.weight", "tower.weight", FormatId::q8_0, {int64_t(n_params / 32), 32}, n_params / 32 * 34, "elsewhere"});
  }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  bool has(std::string_view name) const override { return inner_->has(name); }
  StoredWeight get(std::string_view name) const override { return inner_->get(name); }
  std::string container() const override { return inner_->container(); }

 private:
  std::unique_ptr<WeightFile> inner_;
  std::vector<TensorInfo> tensors_;
};

TEST_F(Activations, ASmallQuantizedModelGetsTheFinerOnesUnlessAskedOtherwise) {
  EXPECT_EQ(used(quantized_, FormatId::unknown), "i16 (auto)");
  EXPECT_EQ(used(quantized_, FormatId::i8), "i8");
  EXPECT_EQ(used(quantized_, FormatId::i16), "i16");
  EXPECT_EQ(used(quantized_, FormatId::f32), "f32");
}

TEST_F(Activations, ALargeQuantizedModelGetsTheFasterOnesUnlessAskedOtherwise) {
  const auto with = [this](uint64_t n_params) {
    Checkpoint checkpoint = open_checkpoint(path_);
    checkpoint.weights = std::make_unique<Larger>(std::move(checkpoint.weights), n_params);
    return checkpoint;
  };
  EXPECT_EQ(used(with(290'000'000), FormatId::unknown), "i16 (auto)");
  EXPECT_EQ(used(with(300'000'000), FormatId::unknown), "i8 (auto)");
  EXPECT_EQ(used(with(300'000'000), FormatId::i16), "i16");
}

TEST_F(Activations, PlainNumbersAreMultipliedInF32) {
  EXPECT_EQ(used(plain_.checkpoint(), FormatId::unknown), "f32 (auto)");
  EXPECT_EQ(used(plain_.checkpoint(), FormatId::i8), "f32");
}

TEST_F(Activations, TheKvCacheIsExactOnlyWhenF32ActivationsAreAskedFor) {
  EngineOptions options;
  EXPECT_EQ(resolve_kv_format(options), FormatId::f16);
  options.activations = FormatId::i16;
  EXPECT_EQ(resolve_kv_format(options), FormatId::f16);
  options.activations = FormatId::f32;
  EXPECT_EQ(resolve_kv_format(options), FormatId::f32);
}

// Chunks of a prompt, a batch and a single token run different kernels.
TEST_F(Activations, FinerActivationsGiveTheSameTokensInAnyChunkingIsaAndBatch) {
  std::vector<std::vector<int32_t>> expected;
  for (const std::string& isa : available_isas())
    for (const int max_batch_tokens : {3, 17, 256}) {
      EngineOptions options{.device = "cpu", .isa = isa, .n_threads = 2};
      options.activations = FormatId::i16;
      options.max_context = 128;
      options.max_batch_tokens = max_batch_tokens;
      Engine engine(quantized_, options);
      std::map<uint64_t, std::vector<int32_t>> answers;
      for (int i = 0; i < 5; ++i) {
        Request request;
        for (int k = 0; k < 7 + 11 * i; ++k) request.prompt.push_back(3 + (31 * i + 17 * k + k * k) % 90);
        request.params.temperature = 0;
        request.params.ignore_eos = true;
        request.params.max_tokens = 20;
        engine.submit(std::move(request));
      }
      while (!engine.idle())
        for (const Event& event : engine.step())
          for (const auto& s : event.sampled) answers[event.id].push_back(s.token);
      std::vector<std::vector<int32_t>> tokens;
      for (auto& [id, answer] : answers) tokens.push_back(std::move(answer));
      if (expected.empty()) expected = tokens;
      EXPECT_EQ(tokens, expected) << isa << ", steps of " << max_batch_tokens;
    }
  ASSERT_EQ(expected.size(), 5u);
}

}  // namespace
}  // namespace ridge
