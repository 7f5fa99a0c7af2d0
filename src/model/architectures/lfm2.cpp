// LFM2: layers of short convolutions with a few of attention among them, each followed by a gated MLP under names of its own (w1, w3, w2).
#include <algorithm>

#include "model/architectures/registry.h"
#include "model/modules/mlp.h"
#include "model/modules/short_conv.h"

namespace ridge {
namespace {

int read_lfm2_d_ff(const Config& config) {
  int64_t d_ff = config.integer_or("block_ff_dim", config.integer_or("intermediate_size", 12288, 1, 1 << 20), 1, 1 << 20);
  if (!config.flag_or("block_auto_adjust_ff_dim", true)) return static_cast<int>(d_ff);
  const int multiple = config.integer_or("block_multiple_of", 256, 1, 1 << 20);
  d_ff = static_cast<int64_t>(config.number_or("block_ffn_dim_multiplier", 1.0, 1e-3, 1e3) * static_cast<double>(2 * d_ff / 3));
  return static_cast<int>((d_ff + multiple - 1) / multiple * multiple);
}

}  // namespace

void build_lfm2(Construction& c) {
  const Config& config = c.config;
  Shape s = read_shape(config, {.n_kv_heads = 8, .max_context = 128000, .eps = 1e-5, .eps_key = "norm_eps"});
  s.d_ff = read_lfm2_d_ff(config);
  const int n_taps = config.integer_or("conv_L_cache", 3, 1, 16);
  const bool bias = config.flag_or("conv_bias", false);
  std::vector<std::string> types(static_cast<size_t>(s.n_layers), config.has("full_attn_idxs") ? "conv" : "full_attention");
  if (config.has("layer_types")) types = config.texts("layer_types", static_cast<size_t>(s.n_layers));
  else if (config.has("full_attn_idxs")) for (const int i : config.integers("full_attn_idxs", 0, s.n_layers - 1)) types[static_cast<size_t>(i)] = "full_attention";
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s, 1000000.0);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i), &type = types[static_cast<size_t>(i)];
    if (type != "conv" && type != "full_attention") config.refuse("layer_types", "only conv and full_attention are known");
    c.add_block({.before = c.rms_norm(p + "operator_norm", s),
                 .module = type == "conv" ? make_short_conv(c, p + "conv.", s.d_model, n_taps, bias)
                                          : c.attention(p + "self_attn.", s, {.rope = rope, .qk_norm = QkNorm::per_head, .output = "out_proj",
                                                                              .q_norm = "q_layernorm", .k_norm = "k_layernorm"})},
                {.before = c.rms_norm(p + "ffn_norm", s), .module = c.gated_mlp(p + "feed_forward.", s, {.names = {.gate = "w1", .up = "w3", .down = "w2"}})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.embedding_norm", s), "model.embed_tokens.weight", "lm_head.weight", s, config.flag_or("tie_embedding", true));
}

}  // namespace ridge
