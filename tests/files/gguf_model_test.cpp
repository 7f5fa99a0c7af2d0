// Models through the door of gguf_names and back: what went in under Hugging Face's names comes out, and in between the file has llama.cpp's names.
#include <gtest/gtest.h>

#include <cmath>

#include "files/checkpoint.h"
#include "files/gguf/layout.h"
#include "files/gguf_tokenizer.h"
#include "files/gguf_weights.h"
#include "files/gguf_writer.h"
#include "files/hf_config.h"
#include "temporary_folder.h"

namespace ridge {
namespace {

// Numbers that differ everywhere, small enough that bf16 and f16 keep them.
TensorSource counting(std::string name, std::vector<int64_t> shape, float first = 0) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i % 2039) / 8;
  return f32_source(std::move(name), std::move(shape), std::move(values));
}

struct Family {
  const char* model_type;
  const char* gguf;
  const char* more;                         // config keys beyond the common ones
  std::vector<std::pair<const char*, const char*>> names;       // some tensors by both names; {} counts layers
};

const Family kFamilies[] = {
    {"llama", "llama", R"({"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})",
     {{"model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight"}, {"lm_head.weight", "output.weight"}}},
    {"mistral", "llama", R"({"sliding_window": 16})", {{"model.layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight"}}},
    {"qwen2", "qwen2", "{}", {{"model.layers.0.self_attn.q_proj.bias", "blk.0.attn_q.bias"}}},
    {"qwen3", "qwen3", R"({"head_dim": 32})", {{"model.layers.0.self_attn.q_norm.weight", "blk.0.attn_q_norm.weight"}}},
    {"phi3", "phi3", R"({"sliding_window": 2047, "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64, "factor": 2.0,
      "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "short_factor": [1.0, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 2.0], "attention_factor": 1.25}})",
     {{"model.layers.0.self_attn.qkv_proj.weight", "blk.0.attn_qkv.weight"}, {"model.layers.0.mlp.gate_up_proj.weight", "blk.0.ffn_up.weight"}}},
    {"gpt2", "gpt2", R"({"layer_norm_epsilon": 1e-5})", {{"transformer.h.1.attn.c_attn.bias", "blk.1.attn_qkv.bias"}, {"transformer.wpe.weight", "position_embd.weight"}}},
    {"starcoder2", "starcoder2", R"({"norm_epsilon": 1e-5, "sliding_window": 4096})", {{"model.layers.0.mlp.c_fc.weight", "blk.0.ffn_up.weight"}}},
    {"olmo2", "olmo2", "{}", {{"model.layers.0.post_feedforward_layernorm.weight", "blk.0.post_ffw_norm.weight"}}},
    {"olmo3", "olmo2", R"({"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]})", {{"model.layers.0.post_attention_layernorm.weight", "blk.0.post_attention_norm.weight"}}},
    {"smollm3", "smollm3", R"({"no_rope_layers": [1, 0]})", {{"model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"}}},
    {"granite", "granite", R"({"attention_multiplier": 0.25, "embedding_multiplier": 12.0, "residual_multiplier": 0.5, "logits_scaling": 8.0})", {{"model.norm.weight", "output_norm.weight"}}},
    {"gemma", "gemma", R"({"head_dim": 32})", {{"model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"}}},
    {"gemma2", "gemma2", R"({"head_dim": 32, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 16, "query_pre_attn_scalar": 32})",
     {{"model.layers.0.pre_feedforward_layernorm.weight", "blk.0.ffn_norm.weight"}}},
    {"mixtral", "llama", R"({"num_local_experts": 2, "num_experts_per_tok": 1})",
     {{"model.layers.1.block_sparse_moe.experts.0.w1.weight", "blk.1.ffn_gate_exps.weight"}, {"model.layers.1.block_sparse_moe.experts.1.w1.weight", "blk.1.ffn_gate_exps.weight"},
      {"model.layers.1.block_sparse_moe.gate.weight", "blk.1.ffn_gate_inp.weight"}}},
    {"granitemoe", "granitemoe", R"({"num_local_experts": 1, "num_experts_per_tok": 1})", {{"model.layers.0.block_sparse_moe.input_linear.weight", "blk.0.ffn_up_exps.weight"}}},
    {"deepseek_v3", "deepseek2", R"({"num_key_value_heads": 4, "kv_lora_rank": 64, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 16, "v_head_dim": 8, "head_dim": 16, "n_routed_experts": 4,
      "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32, "routed_scaling_factor": 2.5, "norm_topk_prob": true, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1})",
     {{"model.layers.0.self_attn.kv_b_proj.weight", "blk.0.attn_k_b.weight"}, {"model.layers.0.mlp.gate.e_score_correction_bias", "blk.0.exp_probs_b.bias"}}},
    {"gemma3_text", "gemma3", R"({"head_dim": 32, "sliding_window": 16, "rope_local_base_freq": 10000.0, "rope_theta": 1000000.0, "query_pre_attn_scalar": 32})",
     {{"model.layers.1.self_attn.k_norm.weight", "blk.1.attn_k_norm.weight"}}},
};

Json config_of(const Family& f) {
  Json config = {{"model_type", f.model_type}, {"hidden_size", 64}, {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"intermediate_size", 96},
                 {"max_position_embeddings", 128}, {"vocab_size", 40}, {"rms_norm_eps", 0.00001}, {"tie_word_embeddings", false}};
  const Json more = Json::parse(f.more);
  for (const auto& [key, value] : more.items()) config[key] = value;
  if (!config.contains("rope_parameters") && !config.contains("rope_theta")) config["rope_theta"] = 10000.0;
  return normalize_config(config, "test");
}

// Shapes that a tensor of this name may have.
std::vector<int64_t> shape_of(std::string_view name) {
  if (name.ends_with(".bias") || name.find("norm") != std::string_view::npos) return {64};
  return {64, 64};
}

TEST(GgufModel, EveryFamilyComesBackUnderItsOwnNames) {
  for (const Family& f : kFamilies) {
    SCOPED_TRACE(f.model_type);
    const TemporaryFolder folder;
    const Json config = config_of(f);
    std::vector<TensorSource> tensors = {counting(std::string(f.gguf) == "gpt2" ? "transformer.wte.weight" : "model.embed_tokens.weight", {40, 64})};
    for (const auto& [hf, gguf] : f.names) tensors.push_back(counting(hf, shape_of(hf)));
    tensors.push_back(counting("mtp.fc.weight", {4, 8}));
    write_gguf_model(folder.file("m.gguf"), config, {}, tensors);

    const GgufFile file(folder.file("m.gguf"));
    EXPECT_EQ(file.metadata().string("general.architecture"), f.gguf);
    const auto has = [&](std::string_view name) { return std::any_of(file.tensors().begin(), file.tensors().end(), [&](const GgufTensor& t) { return t.name == name; }); };
    EXPECT_TRUE(has("token_embd.weight") && has("mtp.fc.weight"));
    for (const auto& [hf, gguf] : f.names) EXPECT_TRUE(has(gguf)) << gguf;

    const Checkpoint c = open_checkpoint(folder.file("m.gguf"), CacheFolders{});
    EXPECT_EQ(c.config["model_type"], f.model_type);
    for (const TensorSource& t : tensors) {
      const StoredWeight w = c.weights->get(t.name);
      ASSERT_EQ(w.cols, t.cols()) << t.name;
      ASSERT_EQ(w.rows, t.rows()) << t.name;
      std::vector<float> x(static_cast<size_t>(t.cols())), y(x.size());
      for (int64_t r = 0; r < t.rows(); ++r) {
        t.encode_row(reinterpret_cast<std::byte*>(x.data()), r);
        decode_stored_row(y.data(), w, r);
        ASSERT_EQ(x, y) << t.name << " row " << r;
      }
    }
  }
}

// What a file of llama.cpp's own says, without our copy of the config: the metadata alone must give the configuration back.
TEST(GgufModel, MetadataAloneGivesTheConfigurationBack) {
  for (const Family& f : kFamilies) {
    SCOPED_TRACE(f.model_type);
    const TemporaryFolder folder;
    const Json config = config_of(f);
    const GgufArchitecture* a = gguf_architecture_of(config);
    ASSERT_TRUE(a);
    write_gguf(folder.file("m.gguf"), gguf_from_config(config, *a), {});
    const GgufRopeFactors factors = rope_factors_from_config(config);
    const GgufFile file(folder.file("m.gguf"));
    const Json back = config_from_gguf(file, gguf_architecture_of(file), factors, 40, true);
    EXPECT_EQ(back["model_type"], f.model_type);
    for (const auto& [key, value] : config.items()) {
      if (key == "layer_types" || key == "rope_parameters") continue;
      if (key == "no_rope_layers") EXPECT_EQ(back[key], Json::parse("[1, 1]"));                     // every fourth layer is all that llama.cpp knows
      else if (value.is_number_float()) EXPECT_FLOAT_EQ(back.value(key, 0.0f), value.get<float>()) << key;
      else EXPECT_EQ(back.value(key, Json()), value) << key;
    }
    EXPECT_EQ(back.value("layer_types", Json()), config.value("layer_types", Json()));
    if (std::string(f.model_type) != "gpt2" && std::string(f.model_type) != "olmo3") {
      EXPECT_EQ(nlohmann::json(back["rope_parameters"]), nlohmann::json(config["rope_parameters"]));      // in any order
    }
  }
}

TEST(GgufModel, TheFileHasHeadsInterleavedAsLlamaCppReadsThem) {
  const TemporaryFolder folder;
  write_gguf_model(folder.file("m.gguf"), config_of(kFamilies[0]), {}, {counting("model.embed_tokens.weight", {40, 64}), counting("model.layers.0.self_attn.q_proj.weight", {64, 1})});
  const GgufFile file(folder.file("m.gguf"));
  const auto q = std::find_if(file.tensors().begin(), file.tensors().end(), [](const GgufTensor& t) { return t.name == "blk.0.attn_q.weight"; });
  const auto* x = reinterpret_cast<const float*>(q->data);
  // A head of 16 rows: 0, 8, 1, 9, ... ; the second head begins at 16.
  EXPECT_EQ(x[0] * 8, 0);
  EXPECT_EQ(x[1] * 8, 8);
  EXPECT_EQ(x[2] * 8, 1);
  EXPECT_EQ(x[3] * 8, 9);
  EXPECT_EQ(x[16] * 8, 16);
  EXPECT_EQ(x[17] * 8, 24);
  for (int64_t r = 0; r < 64; ++r) EXPECT_EQ(deinterleaved_row(interleaved_row(r, 16, 16), 16, 16), r);
  for (int64_t r = 0; r < 64; ++r) EXPECT_EQ(deinterleaved_row(interleaved_row(r, 16, 8), 16, 8), r);
  EXPECT_EQ(interleaved_row(9, 16, 8), 9);            // beyond the rotated part nothing moves
}

TEST(GgufModel, GemmasNormsHaveOneAddedInTheFile) {
  const TemporaryFolder folder;
  TensorSource norm{.name = "model.norm.weight", .format = FormatId::bf16, .shape = {2}};
  norm.encode_row = [](std::byte* out, int64_t) { const float x[2] = {0.5f, -0.25f}; format(FormatId::bf16).encode_row(out, x, 2); };
  Family gemma = kFamilies[11];
  write_gguf_model(folder.file("m.gguf"), config_of(gemma), {}, {norm, counting("model.embed_tokens.weight", {40, 64})});
  const GgufFile file(folder.file("m.gguf"));
  EXPECT_EQ(file.tensors()[0].format, FormatId::f32);
  EXPECT_EQ(reinterpret_cast<const float*>(file.tensors()[0].data)[0], 1.5f);
  EXPECT_EQ(reinterpret_cast<const float*>(file.tensors()[0].data)[1], 0.75f);
}

TEST(GgufModel, QuantizedTensorsKeepTheirScaleBesideThem) {
  const TemporaryFolder folder;
  const Json config = config_of(kFamilies[0]);
  write_gguf_model(folder.file("a.gguf"), config, {}, {counting("model.embed_tokens.weight", {40, 64}), counting("model.layers.0.self_attn.q_proj.weight", {64, 64}, -100), counting("model.norm.weight", {64})});
  const Checkpoint a = open_checkpoint(folder.file("a.gguf"), CacheFolders{});
  std::vector<TensorSource> tensors;
  for (const TensorInfo& info : model_tensors(*a.weights)) tensors.push_back(converted(*a.weights, info, FormatId::nvfp4));
  write_gguf_model(folder.file("b.gguf"), a.config, tokenizer_metadata(a), tensors);
  const Checkpoint b = open_checkpoint(folder.file("b.gguf"), CacheFolders{});
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  EXPECT_EQ(b.weights->get(name).format, FormatId::nvfp4);
  EXPECT_NE(b.weights->get(name).scale, 1.0f);
  EXPECT_EQ(b.weights->get("model.norm.weight").format, FormatId::f32);
  EXPECT_EQ(b.gguf->metadata().integer("general.file_type"), 39);
  double error = 0, power = 0;
  for (int64_t r = 0; r < 64; ++r) {
    float x[64], y[64];
    decode_stored_row(x, a.weights->get(name), r);
    decode_stored_row(y, b.weights->get(name), r);
    for (int i = 0; i < 64; ++i) error += std::pow(x[i] - y[i], 2), power += std::pow(x[i], 2);
  }
  EXPECT_LT(error, 0.02 * power);
  // Written again in its own format, the bytes are the same.
  tensors.clear();
  for (const TensorInfo& info : model_tensors(*b.weights)) tensors.push_back(converted(*b.weights, info, FormatId::nvfp4));
  write_gguf_model(folder.file("c.gguf"), b.config, tokenizer_metadata(b), tensors);
  const Checkpoint c = open_checkpoint(folder.file("c.gguf"), CacheFolders{});
  EXPECT_EQ(c.weights->get(name).scale, b.weights->get(name).scale);
  for (int64_t r = 0; r < 64; ++r) EXPECT_EQ(std::memcmp(c.weights->get(name).codes.row(r), b.weights->get(name).codes.row(r), 36), 0);
}

TEST(GgufModel, AnUnknownArchitectureIsRefusedByName) {
  const TemporaryFolder folder;
  write_gguf(folder.file("m.gguf"), {{"general.architecture", "qwen33"}}, {counting("t", {4})});
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint(folder.file("m.gguf"), CacheFolders{}); }), {"m.gguf", "general.architecture", "qwen33", "nearest", "qwen3,"}));
  EXPECT_TRUE(mentions(error_of([&] { write_gguf_model(folder.file("n.gguf"), {{"model_type", "hal9000"}}, {}, {}); }), {"n.gguf", "hal9000"}));
  write_gguf(folder.file("o.gguf"), {{"general.architecture", "llama"}}, {counting("t", {4})});
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint(folder.file("o.gguf"), CacheFolders{}); }), {"o.gguf", "llama.block_count", "missing"}));
  EXPECT_FALSE(std::filesystem::exists(folder.file("n.gguf")));
}

TEST(GgufModel, AnUnknownRopeTypeIsRefusedByKey) {
  const TemporaryFolder folder;
  auto pairs = gguf_from_config(config_of(kFamilies[2]), *find_gguf_architecture("qwen2"));
  pairs.push_back({"qwen2.rope.scaling.type", "spiral"});
  write_gguf(folder.file("m.gguf"), pairs, {counting("token_embd.weight", {40, 64})});
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint(folder.file("m.gguf"), CacheFolders{}); }), {"m.gguf", "qwen2.rope.scaling.type", "spiral"}));
}

TEST(GgufModel, FrequenciesThatNoRuleMakesAreKeptAsFactors) {
  const Json config = config_of(kFamilies[0]);
  const TemporaryFolder folder;
  write_gguf(folder.file("m.gguf"), gguf_from_config(config, *find_gguf_architecture("llama")), {});
  const GgufRopeFactors odd{.freqs = {1, 2, 1, 2, 1, 2, 1, 2}};
  const Json rope = config_from_gguf(GgufFile(folder.file("m.gguf")), *find_gguf_architecture("llama"), odd, 40, true)["rope_parameters"];
  EXPECT_EQ(rope["rope_type"], "longrope");
  EXPECT_EQ(rope["long_factor"], rope["short_factor"]);
  EXPECT_EQ(rope["attention_factor"], 1.0);
}

TEST(GgufModel, SplitFilesAreReadAsOneModel) {
  const TemporaryFolder folder;
  auto pairs = gguf_from_config(config_of(kFamilies[2]), *find_gguf_architecture("qwen2"));
  pairs.push_back({"split.count", 2});
  write_gguf(folder.file("m-00001-of-00002.gguf"), pairs, {counting("token_embd.weight", {40, 64})});
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint(folder.file("m-00001-of-00002.gguf"), CacheFolders{}); }), {"part 2 of 2", "m-00002-of-00002.gguf"}));
  write_gguf(folder.file("m-00002-of-00002.gguf"), {{"split.count", 2}}, {counting("output_norm.weight", {64})});
  const Checkpoint c = open_checkpoint(folder.path(), CacheFolders{});
  EXPECT_TRUE(c.weights->has("model.embed_tokens.weight") && c.weights->has("model.norm.weight"));
  EXPECT_EQ(c.weights->container(), "GGUF v3, 2 files");
}

}  // namespace
}  // namespace ridge
