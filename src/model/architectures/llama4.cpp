// Llama 4 (text): layers that rotate see chunks of the text, those that do not see all of it, with a temperature that grows with the position. Mixtures, in every
// n-th layer, weigh what goes into an expert by a sigmoid; a shared expert runs beside them.
#include <algorithm>

#include "model/architectures/registry.h"

namespace ridge {

void build_llama4(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 8, .head_dim = 128, .max_context = 131072, .eps = 1e-5});
  const bool bias = c.config.flag_or("attention_bias", false), qk_norm = c.config.flag_or("use_qk_norm", true);
  const int chunk = c.config.has("attention_chunk_size") || !c.config.json().contains("attention_chunk_size") ? c.config.integer_or("attention_chunk_size", 8192, 1, 1 << 28) : 0;
  const int step = c.config.integer_or("interleave_moe_layer_step", 1, 1, 1 << 20), interval = c.config.integer_or("no_rope_layer_interval", 4, 1, 1 << 20);
  std::vector<int> rotates = c.config.integers("no_rope_layers", 0, 1), sparse = c.config.integers("moe_layers", 0, 1 << 20);
  if (rotates.empty())
    for (int i = 0; i < s.n_layers; i++) rotates.push_back((i + 1) % interval != 0);
  if (std::ssize(rotates) != s.n_layers) c.config.refuse("no_rope_layers", "one number for each layer is needed");
  if (!c.config.has("moe_layers"))
    for (int i = step - 1; i < s.n_layers; i += step) sparse.push_back(i);
  std::vector<std::string> types;
  if (c.config.has("layer_types")) types = c.config.texts("layer_types", static_cast<size_t>(s.n_layers));

  const float temperature = c.config.flag_or("attn_temperature_tuning", true) ? static_cast<float>(c.config.number_or("attn_scale", 0.1, 0.0, 100.0)) : 0.0f;
  const int floor_scale = c.config.integer_or("floor_scale", 8192, 1, 1 << 28);
  const MoeOptions moe{.n_experts = c.config.integer_or("num_local_experts", 16, 1, 1 << 16), .top_k = c.config.integer_or("num_experts_per_tok", 1, 1, 1 << 16), .d_ff = s.d_ff,
                       .act = read_activation(c.config, "hidden_act", "silu"), .gate = GateKind::sigmoid, .gate_chosen = true, .weigh_inputs = true, .router = "router",
                       .transposed = true, .shared = "shared_expert.", .d_shared = s.d_ff};
  Shape dense = s;
  dense.d_ff = c.config.integer_or("intermediate_size_mlp", 16384, 1, 1 << 24);
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s, 500000.0);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    const bool turns = rotates[static_cast<size_t>(i)] != 0, is_sparse = std::find(sparse.begin(), sparse.end(), i) != sparse.end();
    if (!types.empty() && types[static_cast<size_t>(i)] != "chunked_attention" && types[static_cast<size_t>(i)] != "full_attention")
      c.config.refuse("layer_types", "chunked_attention and full_attention are known");
    const bool chunked = types.empty() ? turns : types[static_cast<size_t>(i)] == "chunked_attention";
    c.add_block({.before = c.rms_norm(p + "input_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = turns ? rope : -1, .style = RopeStyle::interleaved, .chunk = chunked ? chunk : 0,
                                                             .qkv_bias = bias, .o_bias = bias, .qk_norm = turns && qk_norm ? QkNorm::weightless : QkNorm::none, .norm_after_rope = true,
                                                             .temperature = turns ? 0.0f : temperature, .temperature_floor = floor_scale, .temperature_offset = 1})},
                {.before = c.rms_norm(p + "post_attention_layernorm", s),
                 .module = is_sparse ? c.moe(p + "feed_forward.", s, moe) : c.gated_mlp(p + "feed_forward.", dense, {.act = moe.act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
