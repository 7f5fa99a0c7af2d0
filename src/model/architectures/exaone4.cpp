// EXAONE 4: OLMo 2's norms after each part, norms on the heads of q and k, and (in the large one) layers of two kinds: those with a window rotate, full ones do
// not. Without a window all layers are full and rotate.
#include "model/architectures/registry.h"

namespace ridge {
namespace {

// "LLLG" repeated, the last layer always global; or a number: every n-th layer is global.
std::vector<int> read_pattern(const Config& config, int n_layers) {
  const bool is_text = config.has("sliding_window_pattern") && config.json()["sliding_window_pattern"].is_string();
  const std::string letters = is_text ? config.text("sliding_window_pattern") : "";
  if (is_text && (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)) config.refuse("sliding_window_pattern", "a number, or letters L and G, is needed");
  const int period = is_text ? 1 : config.integer_or("sliding_window_pattern", 4, 1, 1 << 20);
  return read_windows(config, n_layers, 4096, [&](int i) { return is_text ? letters[static_cast<size_t>(i) % letters.size()] == 'L' && i + 1 < n_layers : (i + 1) % period != 0; });
}

}  // namespace

void build_exaone4(Construction& c) {
  const Shape s = read_shape(c.config, {.n_kv_heads = 32, .max_context = 2048, .eps = 1e-5});
  const bool mixed = read_window(c.config, 4096) > 0;
  const std::vector<int> windows = mixed ? read_pattern(c.config, s.n_layers) : std::vector<int>(static_cast<size_t>(s.n_layers), 0);
  const ActKind act = read_activation(c.config, "hidden_act", "silu");
  c.embed("model.embed_tokens.weight", s);
  const int rope = c.add_rope(s);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    c.add_block({.after = c.rms_norm(p + "post_attention_layernorm", s),
                 .module = c.attention(p + "self_attn.", s, {.rope = !mixed || windows[i] > 0 ? rope : -1, .window = windows[i], .qk_norm = QkNorm::per_head})},
                {.after = c.rms_norm(p + "post_feedforward_layernorm", s), .module = c.gated_mlp(p + "mlp.", s, {.act = act})});
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
