// GPT-2: learned positions, layer norms with biases, biases everywhere, a plain MLP, one fused q/k/v. The config has names of its own, and the matrices are Conv1D's,
// [inputs, outputs], in safetensors but [outputs, inputs] in GGUF. c_attn, [d, 3d] or [3d, d], tells which: square matrices would not.
#include <cmath>

#include "base/error.h"
#include "model/architectures/registry.h"

namespace ridge {
namespace {

Shape read_gpt2_shape(const Config& config) {
  Shape s{};
  s.n_vocab = config.integer("vocab_size", 1, 1 << 24);
  s.d_model = config.integer("n_embd", 1, 1 << 17);
  s.n_layers = config.integer("n_layer", 1, 2048);
  s.n_heads = s.n_kv_heads = config.integer("n_head", 1, 4096);
  if (s.d_model % s.n_heads != 0) config.refuse("n_head", fmt::format("it must divide n_embd, {}", s.d_model));
  s.head_dim = s.d_model / s.n_heads;
  s.d_ff = config.integer_or("n_inner", 4 * s.d_model, 1, 1 << 20);
  s.max_context = config.integer_or("n_positions", 1024, 1, 1 << 24);
  s.eps = static_cast<float>(config.number_or("layer_norm_epsilon", 1e-5, 0, 1));
  return s;
}

}  // namespace

void build_gpt2(Construction& c) {
  const Shape s = read_gpt2_shape(c.config);
  const ActKind act = read_activation(c.config, "activation_function", "gelu_new");
  const bool scaled = c.config.flag_or("scale_attn_weights", true), by_layer = c.config.flag_or("scale_attn_by_inverse_layer_idx", false);
  c.config.refuse_unless("add_cross_attention", false);
  const std::string t = c.weights.has("transformer.wte.weight") ? "transformer." : "";     // the first checkpoints lack the prefix
  c.embed(t + "wte.weight", s);
  c.model.embed_positions = c.weights.table("embedding", t + "wpe.weight", s.max_context, s.d_model);
  const StoredWeight first = c.weights.stored(t + "h.0.attn.c_attn.weight");
  c.weights.set_transposed(first.rows == s.d_model && first.cols == 3ll * s.d_model);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i, t + "h.");
    const double scale = (scaled ? 1.0 / std::sqrt(static_cast<double>(s.head_dim)) : 1.0) / (by_layer ? i + 1 : 1);
    c.add_block({.before = c.layer_norm(p + "ln_1", s),
                 .module = c.attention(p + "attn.", s, {.scale = static_cast<float>(scale), .qkv_bias = true, .o_bias = true, .fused_qkv = "c_attn", .output = "c_proj"})},
                {.before = c.layer_norm(p + "ln_2", s), .module = c.plain_mlp(p + "mlp.", s, {.act = act, .bias = true})});
  }
  c.weights.refuse_unused(t + "h.", s.n_layers);
  c.finish(c.layer_norm(t + "ln_f", s), t + "wte.weight", "lm_head.weight", s, true);
}

}  // namespace ridge
