#include "cli/shapes.h"

#include <array>

#include "base/error.h"

namespace ridge {
namespace {

//   name, type, d_model, d_ff, layers, heads, kv heads, head_dim, vocabulary, tied, theta, context, eps, llama3 factor, experts, experts for a token, their d_ff
constexpr std::array kShapes = {
    BenchShape{"qwen3-0.6b", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, true, 1e6, 40960, 1e-6f},
    BenchShape{"qwen3-1.7b", "qwen3", 2048, 6144, 28, 16, 8, 128, 151936, true, 1e6, 40960, 1e-6f},
    BenchShape{"qwen3-4b", "qwen3", 2560, 9728, 36, 32, 8, 128, 151936, true, 1e6, 40960, 1e-6f},
    BenchShape{"qwen3-8b", "qwen3", 4096, 12288, 36, 32, 8, 128, 151936, false, 1e6, 40960, 1e-6f},
    BenchShape{"qwen3-14b", "qwen3", 5120, 17408, 40, 40, 8, 128, 151936, false, 1e6, 40960, 1e-6f},
    BenchShape{"qwen3-32b", "qwen3", 5120, 25600, 64, 64, 8, 128, 151936, false, 1e6, 40960, 1e-6f},
    BenchShape{"qwen2.5-0.5b", "qwen2", 896, 4864, 24, 14, 2, 64, 151936, true, 1e6, 32768, 1e-6f},
    BenchShape{"qwen2.5-1.5b", "qwen2", 1536, 8960, 28, 12, 2, 128, 151936, true, 1e6, 32768, 1e-6f},
    BenchShape{"qwen2.5-7b", "qwen2", 3584, 18944, 28, 28, 4, 128, 152064, false, 1e6, 32768, 1e-6f},
    BenchShape{"llama-3.2-1b", "llama", 2048, 8192, 16, 32, 8, 64, 128256, true, 5e5, 131072, 1e-5f, 32},
    BenchShape{"llama-3.2-3b", "llama", 3072, 8192, 28, 24, 8, 128, 128256, true, 5e5, 131072, 1e-5f, 32},
    BenchShape{"llama-3.1-8b", "llama", 4096, 14336, 32, 32, 8, 128, 128256, false, 5e5, 131072, 1e-5f, 8},
    BenchShape{"mistral-7b", "mistral", 4096, 14336, 32, 32, 8, 128, 32768, false, 1e6, 32768, 1e-5f},
    BenchShape{"smollm2-135m", "llama", 576, 1536, 30, 9, 3, 64, 49152, true, 1e5, 8192, 1e-5f},
    BenchShape{"smollm2-360m", "llama", 960, 2560, 32, 15, 5, 64, 49152, true, 1e5, 8192, 1e-5f},
    BenchShape{"smollm2-1.7b", "llama", 2048, 8192, 24, 32, 32, 64, 49152, true, 1.3e5, 8192, 1e-5f},
    BenchShape{"qwen3-30b-a3b", "qwen3_moe", 2048, 6144, 48, 32, 4, 128, 151936, false, 1e6, 40960, 1e-6f, 0, 128, 8, 768},
    BenchShape{"tiny-moe", "qwen3_moe", 128, 256, 2, 4, 2, 64, 512, true, 1e4, 2048, 1e-6f, 0, 8, 2, 128},
    BenchShape{"tiny", "qwen3", 128, 256, 2, 4, 2, 64, 512, true, 1e4, 2048, 1e-6f},
};

}  // namespace

const BenchShape& find_shape(const std::string& name) {
  for (const BenchShape& shape : kShapes)
    if (shape.name == name) return shape;
  fail("--shape {}: not known; there are {}", name, fmt::join(known_shapes(), ", "));
}

std::vector<std::string> known_shapes() {
  std::vector<std::string> names;
  for (const BenchShape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

Json config_of(const BenchShape& s) {
  static const Json kClasses = {{"qwen3", "Qwen3ForCausalLM"}, {"qwen3_moe", "Qwen3MoeForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"llama", "LlamaForCausalLM"}, {"mistral", "MistralForCausalLM"}};
  Json rope = {{"rope_type", "default"}, {"rope_theta", s.rope_theta}};
  if (s.llama3_factor > 0)
    rope = {{"rope_type", "llama3"}, {"rope_theta", s.rope_theta}, {"factor", s.llama3_factor}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  Json config = {{"architectures", {kClasses[std::string(s.model_type)]}}, {"model_type", s.model_type}, {"vocab_size", s.n_vocab}, {"hidden_size", s.d_model}, {"intermediate_size", s.d_ff},
          {"num_hidden_layers", s.n_layers}, {"num_attention_heads", s.n_heads}, {"num_key_value_heads", s.n_kv_heads}, {"head_dim", s.head_dim}, {"hidden_act", "silu"},
          {"max_position_embeddings", s.max_context}, {"rms_norm_eps", s.eps}, {"tie_word_embeddings", s.tied}, {"rope_parameters", rope}};
  if (s.n_experts > 0)
    config.update(Json{{"num_experts", s.n_experts}, {"num_experts_per_tok", s.top_k}, {"moe_intermediate_size", s.d_expert}, {"norm_topk_prob", true}});
  return config;
}

std::vector<ShapeTensor> tensors_of(const BenchShape& s) {
  const int64_t d = s.d_model, q = int64_t{s.n_heads} * s.head_dim, kv = int64_t{s.n_kv_heads} * s.head_dim;
  std::vector<ShapeTensor> tensors = {{"model.embed_tokens.weight", s.n_vocab, d}};
  for (int i = 0; i < s.n_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const auto add = [&](const char* name, int64_t rows, int64_t cols) { tensors.push_back({layer + name, rows, cols}); };
    add("input_layernorm.weight", 0, d);
    add("self_attn.q_proj.weight", q, d);
    add("self_attn.k_proj.weight", kv, d);
    add("self_attn.v_proj.weight", kv, d);
    add("self_attn.o_proj.weight", d, q);
    if (s.model_type.starts_with("qwen3")) add("self_attn.q_norm.weight", 0, s.head_dim), add("self_attn.k_norm.weight", 0, s.head_dim);
    if (s.model_type == "qwen2") add("self_attn.q_proj.bias", 0, q), add("self_attn.k_proj.bias", 0, kv), add("self_attn.v_proj.bias", 0, kv);
    add("post_attention_layernorm.weight", 0, d);
    const auto add_ffn = [&](const std::string& prefix, int64_t d_ff) {
      for (const char* name : {"gate_proj.weight", "up_proj.weight"}) tensors.push_back({layer + prefix + name, d_ff, d});
      tensors.push_back({layer + prefix + "down_proj.weight", d, d_ff});
    };
    if (s.n_experts == 0) add_ffn("mlp.", s.d_ff);
    else tensors.push_back({layer + "mlp.gate.weight", s.n_experts, d, true});
    for (int e = 0; e < s.n_experts; ++e) add_ffn(fmt::format("mlp.experts.{}.", e), s.d_expert);
  }
  tensors.push_back({"model.norm.weight", 0, d});
  if (!s.tied) tensors.push_back({"lm_head.weight", s.n_vocab, d});
  return tensors;
}

}  // namespace ridge
