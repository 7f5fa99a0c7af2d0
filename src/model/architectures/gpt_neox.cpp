// GPT-NeoX and Pythia: attention and a plain MLP side by side, each from a layer norm of its own; q, k and v of a head lie together in one tensor; a quarter of
// each head is rotated.
#include "base/error.h"
#include "model/architectures/registry.h"

namespace ridge {

void build_gpt_neox(Construction& c) {
  Shape s = read_shape(c.config, {.max_context = 2048, .eps = 1e-5, .eps_key = "layer_norm_eps"});
  if (s.d_model % s.n_heads != 0) c.config.refuse("num_attention_heads", fmt::format("it must divide hidden_size, {}", s.d_model));
  s.n_kv_heads = s.n_heads;                                            // whatever else the config says
  s.head_dim = s.d_model / s.n_heads;
  const bool bias = c.config.flag_or("attention_bias", true), parallel = c.config.flag_or("use_parallel_residual", true);
  const ActKind act = read_activation(c.config, "hidden_act", "gelu");
  const double theta = c.config.number_or("rotary_emb_base", 10000.0, 1e-3, 1e12), partial = c.config.number_or("rotary_pct", 0.25, 0.0, 1.0);
  c.embed("gpt_neox.embed_in.weight", s);
  const int rope = c.add_rope(read_rope_parameters(c.config, "", theta, partial), s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i, "gpt_neox.layers.");
    Norm first = c.layer_norm(p + "input_layernorm", s), second = c.layer_norm(p + "post_attention_layernorm", s);
    auto attention = c.attention(p + "attention.", s, {.rope = rope, .qkv_bias = bias, .o_bias = bias, .fused_qkv = "query_key_value", .fused_order = QkvOrder::by_kv_head,
                                                       .output = "dense"});
    auto mlp = c.plain_mlp(p + "mlp.", s, {.act = act, .bias = true, .in = "dense_h_to_4h", .out = "dense_4h_to_h"});
    if (parallel) c.add_parallel_block({.norm = first, .ffn_norm = second, .mixer = std::move(attention), .ffn = std::move(mlp)});
    else c.add_block({.before = first, .module = std::move(attention)}, {.before = second, .module = std::move(mlp)});
  }
  c.weights.refuse_unused("gpt_neox.layers.", s.n_layers);
  c.finish(c.layer_norm("gpt_neox.final_layer_norm", s), "gpt_neox.embed_in.weight", "embed_out.weight", s, false);
}

}  // namespace ridge
