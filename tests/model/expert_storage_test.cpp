// A mixture gives the same logits however its file stores the experts: one by one, fused, transposed with gate and up in turns, as MXFP4 blocks or as FP8 with
// scales for 128 x 128 numbers. Small random models are written in each way.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "base/files.h"
#include "base/float_types.h"
#include "files/checkpoint.h"
#include "files/safetensors_writer.h"
#include "files/temporary_folder.h"
#include "model/one_sequence.h"
#include "ref/ref_backend.h"

namespace ridge {
namespace {

constexpr int kDim = 64, kFf = 32, kExperts = 3, kLayers = 2;

// Numbers that every storage holds exactly: e2m1 codes times 2^-4, and for fp8 the same as e4m3 times its block's scale.
struct Codes {
  std::mt19937 random{17};
  std::vector<uint8_t> take(size_t n) {
    std::vector<uint8_t> codes(n);
    for (uint8_t& c : codes) c = static_cast<uint8_t>(random() % 16);
    return codes;
  }
};
float number(uint8_t code) { return kE2m1[code] / 16; }

using Tensors = std::vector<TensorSource>;

TensorSource bytes_source(std::string name, FormatId format, std::vector<int64_t> shape, std::vector<uint8_t> bytes) {
  TensorSource t{.name = std::move(name), .format = format, .shape = std::move(shape)};
  t.encode_row = [bytes = std::move(bytes), n = static_cast<size_t>(t.cols())](std::byte* out, int64_t r) { std::memcpy(out, bytes.data() + static_cast<size_t>(r) * n, n); };
  return t;
}

TensorSource plain(const std::string& name, std::vector<int64_t> shape, const std::vector<uint8_t>& codes) {
  std::vector<float> values;
  for (const uint8_t c : codes) values.push_back(number(c));
  return f32_source(name, std::move(shape), values);
}

// One matrix of an expert: codes [rows, cols].
struct Expert { std::vector<uint8_t> gate, up, down; };

std::vector<Expert> random_experts(Codes& codes) {
  std::vector<Expert> experts;
  for (int e = 0; e < kExperts; e++) experts.push_back({codes.take(kFf * kDim), codes.take(kFf * kDim), codes.take(kDim * kFf)});
  return experts;
}

// Everything but the experts.
Tensors common(Codes& codes, const std::string& router, bool gpt_oss) {
  Tensors t;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols) { t.push_back(plain(name, {rows, cols}, codes.take(static_cast<size_t>(rows * cols)))); };
  const auto vector = [&](const std::string& name, int64_t n) { t.push_back(f32_source(name, {n}, std::vector<float>(static_cast<size_t>(n), 0.75f))); };
  matrix("model.embed_tokens.weight", 50, kDim);
  matrix("lm_head.weight", 50, kDim);
  vector("model.norm.weight", kDim);
  for (int i = 0; i < kLayers; i++) {
    const std::string p = fmt::format("model.layers.{}.", i);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      matrix(p + "self_attn." + name + ".weight", kDim, kDim);
      if (gpt_oss) vector(p + "self_attn." + name + ".bias", kDim);
    }
    if (gpt_oss) vector(p + "self_attn.sinks", 4), vector(p + router + ".bias", kExperts);
    else vector(p + "self_attn.q_norm.weight", 16), vector(p + "self_attn.k_norm.weight", 16);
    vector(p + "input_layernorm.weight", kDim);
    vector(p + "post_attention_layernorm.weight", kDim);
    matrix(p + router + ".weight", kExperts, kDim);
  }
  return t;
}

Json config(const char* type) {
  return {{"model_type", type}, {"vocab_size", 50}, {"hidden_size", kDim}, {"intermediate_size", kFf}, {"moe_intermediate_size", kFf}, {"num_hidden_layers", kLayers},
          {"num_attention_heads", 4}, {"num_key_value_heads", 4}, {"head_dim", 16}, {"num_experts_per_tok", 2}, {"num_local_experts", kExperts}, {"norm_topk_prob", true},
          {"sliding_window", 16}, {"use_sliding_window", false}, {"max_position_embeddings", 128}, {"tie_word_embeddings", false}};
}

std::vector<float> logits_of(const Json& config, const Tensors& tensors) {
  const TemporaryFolder folder;
  write_safetensors(folder.file("model.safetensors"), tensors);
  OutputFile file(folder.file("config.json"));
  file.write(config.dump());
  file.commit();
  const Checkpoint checkpoint = open_checkpoint(folder.path());
  const auto backend = make_ref_backend();
  const auto model = load_model(checkpoint, *backend, {.activations = FormatId::f32, .kv_format = FormatId::f32});
  test::OneSequence sequence(*model, *backend, 16);
  return sequence.run(std::vector<int32_t>{3, 14, 15, 9, 26, 5, 35, 8, 9, 7}, 0);
}

TEST(ExpertStorage, OneByOneFusedAndFp8AreTheSameMixture) {
  std::map<std::string, std::vector<float>> logits;
  for (const std::string way : {"single", "fused", "fp8"}) {
    Codes codes;
    Tensors tensors = common(codes, "mlp.gate", false);
    for (int i = 0; i < kLayers; i++) {
      const std::string p = fmt::format("model.layers.{}.mlp.experts.", i);
      const std::vector<Expert> experts = random_experts(codes);
      std::vector<uint8_t> gate_up, down;
      for (int e = 0; e < kExperts; e++) {
        const Expert& x = experts[static_cast<size_t>(e)];
        for (const auto* part : {&x.gate, &x.up}) gate_up.insert(gate_up.end(), part->begin(), part->end());
        down.insert(down.end(), x.down.begin(), x.down.end());
        const auto add = [&](const char* name, int64_t rows, int64_t cols, const std::vector<uint8_t>& part) {
          const std::string full = fmt::format("{}{}.{}.weight", p, e, name);
          if (way == "single") tensors.push_back(plain(full, {rows, cols}, part));
          if (way != "fp8") return;
          std::vector<uint8_t> bytes;
          for (const uint8_t c : part) bytes.push_back(f32_to_e4m3(kE2m1[c]));
          tensors.push_back(bytes_source(full, FormatId::fp8_e4m3, {rows, cols}, bytes));
          tensors.push_back(f32_source(full + "_scale_inv", {1, 1}, {1.0f / 16}));
        };
        add("gate_proj", kFf, kDim, x.gate);
        add("up_proj", kFf, kDim, x.up);
        add("down_proj", kDim, kFf, x.down);
      }
      if (way == "fused") tensors.push_back(plain(p + "gate_up_proj", {kExperts, 2 * kFf, kDim}, gate_up)), tensors.push_back(plain(p + "down_proj", {kExperts, kDim, kFf}, down));
    }
    logits[way] = logits_of(config("qwen3_moe"), tensors);
  }
  EXPECT_EQ(logits["fused"], logits["single"]);
  EXPECT_EQ(logits["fp8"], logits["single"]);
}

TEST(ExpertStorage, GptOssBlocksAreItsPlainExpertsTurned) {
  std::map<std::string, std::vector<float>> logits;
  for (const std::string way : {"plain", "blocks"}) {
    Codes codes;
    Tensors tensors = common(codes, "mlp.router", true);
    for (int i = 0; i < kLayers; i++) {
      const std::string p = fmt::format("model.layers.{}.mlp.experts.", i);
      const std::vector<Expert> experts = random_experts(codes);
      // Rows [outputs, inputs] of all experts, gate and up in turns; plain numbers lie the other way round.
      const auto add = [&](const std::string& name, int64_t rows, int64_t cols, const auto& code) {
        std::vector<uint8_t> turned(static_cast<size_t>(kExperts * rows * cols)), blocks(turned.size() / 2);
        for (int64_t e = 0; e < kExperts; e++)
          for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) {
              const uint8_t q = code(experts[static_cast<size_t>(e)], r, c);
              turned[static_cast<size_t>((e * cols + c) * rows + r)] = q;
              blocks[static_cast<size_t>(((e * rows + r) * cols + c) / 2)] |= static_cast<uint8_t>(q << (c % 2 * 4));
            }
        if (way == "plain") {
          tensors.push_back(plain(p + name, {kExperts, cols, rows}, turned));
        } else {
          tensors.push_back(bytes_source(p + name + "_blocks", FormatId::u8, {kExperts, rows, cols / 32, 16}, blocks));
          tensors.push_back(bytes_source(p + name + "_scales", FormatId::u8, {kExperts, rows, cols / 32}, std::vector<uint8_t>(turned.size() / 32, 127 - 4)));
        }
        std::vector<float> bias;
        for (int64_t k = 0; k < kExperts * rows; k++) bias.push_back(0.01f * static_cast<float>(k % 23));
        tensors.push_back(f32_source(p + name + "_bias", {kExperts, rows}, bias));
      };
      add("gate_up_proj", 2 * kFf, kDim, [](const Expert& x, int64_t r, int64_t c) { return (r % 2 == 0 ? x.gate : x.up)[static_cast<size_t>(r / 2 * kDim + c)]; });
      add("down_proj", kDim, kFf, [](const Expert& x, int64_t r, int64_t c) { return x.down[static_cast<size_t>(r * kFf + c)]; });
    }
    logits[way] = logits_of(config("gpt_oss"), tensors);
  }
  EXPECT_EQ(logits["blocks"], logits["plain"]);
}

TEST(ExpertStorage, AMixtureThatContradictsItsFileOrItselfIsRefused) {
  const auto refusal = [](const char* key, int value) {
    Codes codes;
    Tensors tensors = common(codes, "mlp.gate", false);
    for (int i = 0; i < kLayers; i++)
      for (int e = 0; e < kExperts; e++)
        for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
          const bool back = std::string_view(name) == "down_proj";
          tensors.push_back(plain(fmt::format("model.layers.{}.mlp.experts.{}.{}.weight", i, e, name), {back ? kDim : kFf, back ? kFf : kDim}, codes.take(kFf * kDim)));
        }
    Json changed = config("qwen3_moe");
    changed[key] = value;
    return error_of([&] { logits_of(changed, tensors); });
  };
  EXPECT_TRUE(mentions(refusal("num_experts_per_tok", 4), {"4 experts", "3"}));
  EXPECT_TRUE(mentions(refusal("moe_intermediate_size", 16), {"mlp.experts.0.gate_proj.weight", "[32, 64]", "[16, 64]"}));
  EXPECT_TRUE(mentions(refusal("num_local_experts", 4), {"mlp.gate.weight", "[3, 64]", "[4, 64]"}));
  EXPECT_TRUE(mentions(refusal("num_local_experts", 2), {"mlp.gate.weight", "[3, 64]", "[2, 64]"}));
}

}  // namespace
}  // namespace ridge
