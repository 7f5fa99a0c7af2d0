// Gemma 4 (text): Gemma 3 with plain norm weights and scores that are not scaled, a norm on values, wider heads in full layers, last layers that read the KV of
// earlier ones, an input of its own for every layer, and a factor on the stream after each.
#include <cmath>

#include "base/error.h"
#include "model/architectures/registry.h"
#include "model/modules/layer_input.h"

namespace ridge {
namespace {

// Heads of layer i: full layers have their own, as per_layer_config says or (older configs) global_head_dim and num_global_key_value_heads.
Shape layer_shape(const Config& config, Shape s, int i, bool full, bool values_are_keys) {
  if (config.has("per_layer_config")) {
    const Config all = config.section("per_layer_config");
    if (!all.has(std::to_string(i))) return s;
    const Config own = all.section(std::to_string(i));
    for (const auto& [key, value] : own.json().items())
      if (key != "head_dim" && key != "num_key_value_heads") own.refuse(key, "only head_dim and num_key_value_heads of a layer are supported");
    s.head_dim = own.integer_or("head_dim", s.head_dim, 1, 4096);
    s.n_kv_heads = own.integer_or("num_key_value_heads", s.n_kv_heads, 1, 4096);
  } else if (full) {
    s.head_dim = config.integer_or("global_head_dim", 512, 1, 4096);
    if (values_are_keys) s.n_kv_heads = config.integer_or("num_global_key_value_heads", s.n_kv_heads, 1, 4096);
  }
  if (s.n_heads % s.n_kv_heads != 0) config.refuse("num_key_value_heads", fmt::format("layer {} has {} of them, which do not divide {} heads", i, s.n_kv_heads, s.n_heads));
  return s;
}

}  // namespace

void build_gemma4(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_shape(config, {.n_kv_heads = 4, .head_dim = 256, .max_context = 131072});
  const bool bias = config.flag_or("attention_bias", false), k_is_v = config.flag_or("attention_k_eq_v", false), double_wide = config.flag_or("use_double_wide_mlp", false);
  config.refuse_unless("use_bidirectional_attention", "vision");       // which is causal for text
  config.refuse_unless("enable_moe_block", false);
  std::vector<int> windows = read_windows(config, s.n_layers, 512, [](int i) { return (i + 1) % 6 != 0; });
  windows.back() = 0;
  const ActKind act = read_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  c.model.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0, 0, 1e6));
  const int first_shared = s.n_layers - config.integer_or("num_kv_shared_layers", 0, 0, s.n_layers - 1);

  std::string root = "model.";
  for (const char* prefix : {"language_model.model.", "model.language_model."})
    if (c.weights.has(std::string(prefix) + "embed_tokens.weight")) root = prefix;
  c.embed(root + "embed_tokens.weight", s, std::sqrt(static_cast<float>(s.d_model)));
  const int width = config.integer_or("hidden_size_per_layer_input", 256, 0, 1 << 17);
  if (width > 0) c.add_layer_inputs(root, s, width, config.integer_or("vocab_size_per_layer_input", s.n_vocab, 1, 1 << 24));

  int last_kv[2] = {-1, -1};                                           // newest handle of full and of window layers
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i, root + "layers.");
    const bool full = windows[i] == 0, shared = i >= first_shared;
    Shape own = layer_shape(config, s, i, full, k_is_v);
    if (double_wide && shared) own.d_ff *= 2;
    if (shared && last_kv[full] < 0) config.refuse("num_kv_shared_layers", fmt::format("layer {} has no earlier layer of its kind to share with", i));
    const int rope = c.add_rope(read_rope_parameters(config, full ? "full_attention" : "sliding_attention", full ? 1000000.0 : 10000.0), own);
    std::vector<SequentialBlock::Part> parts;
    parts.push_back({.before = c.rms_norm(p + "input_layernorm", s), .after = c.rms_norm(p + "post_attention_layernorm", s),
                     .module = c.attention(p + "self_attn.", own, {.rope = rope, .window = windows[i], .scale = 1, .qkv_bias = bias, .o_bias = bias,
                                                                   .qk_norm = QkNorm::per_head, .v_norm = true, .kv_of = shared ? last_kv[full] : -1,
                                                                   .values_are_keys = k_is_v && full})});
    if (!shared) last_kv[full] = static_cast<int>(c.model.kv_specs.size()) - 1;
    parts.push_back({.before = c.rms_norm(p + "pre_feedforward_layernorm", s), .after = c.rms_norm(p + "post_feedforward_layernorm", s),
                     .module = c.gated_mlp(p + "mlp.", own, {.act = act})});
    if (width > 0) parts.push_back({.after = c.rms_norm(p + "post_per_layer_input_norm", s), .module = c.layer_input(p, s, i, width, act)});
    c.add_block(std::move(parts), 1, c.weights.has(p + "layer_scalar") ? c.weights.number("norms", p + "layer_scalar") : 1);
    if (shared) c.weights.ignore({p + "self_attn.k_proj.weight", p + "self_attn.v_proj.weight", p + "self_attn.k_norm.weight", p + "self_attn.v_norm.weight"});
  }
  c.weights.refuse_unused(root + "layers.", s.n_layers);
  c.finish(c.rms_norm(root + "norm", s), root + "embed_tokens.weight", "lm_head.weight", s, true);
}

}  // namespace ridge
