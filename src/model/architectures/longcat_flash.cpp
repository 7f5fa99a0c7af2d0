// LongCat-Flash: layers of two latent attentions, two dense feed-forwards and one mixture beside them, some of whose experts return their input. The low ranks
// of queries and latents are scaled up to the width they stand for.
#include <cmath>

#include "base/error.h"
#include "model/architectures/registry.h"
#include "model/blocks/shortcut.h"
#include "model/modules/mla.h"

namespace ridge {
namespace {

Shape read_longcat_shape(const Config& config) {
  Shape s{};
  s.n_vocab = config.integer("vocab_size", 1, 1 << 24);
  s.d_model = config.integer("hidden_size", 1, 1 << 17);
  s.n_layers = config.has("num_layers") ? config.integer("num_layers", 1, 1024) : config.integer("num_hidden_layers", 2, 2048) / 2;
  s.n_heads = s.n_kv_heads = config.integer("num_attention_heads", 1, 4096);
  s.d_ff = config.integer("ffn_hidden_size", 1, 1 << 20);
  s.max_context = config.integer_or("max_position_embeddings", 131072, 1, 1 << 28);
  s.eps = static_cast<float>(config.number_or("rms_norm_eps", 1e-5, 0, 1));
  return s;
}

}  // namespace

void build_longcat_flash(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_longcat_shape(config);
  const MlaShape m = read_mla_shape(config);
  const ActKind act = read_activation(config, "hidden_act", "silu");
  if (m.q_rank == 0) config.refuse("q_lora_rank", "queries of this family come from a low rank");
  config.refuse_unless("router_bias", false);
  config.refuse_unless("zero_expert_type", "identity");
  config.refuse_unless("norm_topk_prob", false);
  config.refuse_unless("mla_scale_q_lora", true);
  config.refuse_unless("mla_scale_kv_lora", true);
  const MoeOptions mixture{.n_experts = config.integer("n_routed_experts", 1, 1 << 16), .top_k = config.integer("moe_topk", 1, 1 << 16),
                           .d_ff = config.integer("expert_ffn_hidden_size", 1, 1 << 20), .n_idle = config.integer_or("zero_expert_num", 0, 0, 1 << 16), .act = act,
                           .scale = static_cast<float>(config.number_or("routed_scaling_factor", 6.0, 0, 1e6)), .router = "router.classifier",
                           .choice_bias = "router.e_score_correction_bias"};
  const auto upscale = [&](int rank) { return static_cast<float>(std::sqrt(static_cast<double>(s.d_model) / rank)); };

  c.embed("model.embed_tokens.weight", s);
  const MlaOptions attention{.rope = add_mla_rope(c, s, m, 10000000.0), .scale = mla_scale(config, m), .q_scale = upscale(m.q_rank), .latent_scale = upscale(m.kv_rank),
                             .bias = config.flag_or("attention_bias", false)};
  c.scratch(ShortcutBlock::kMixture, s.d_model);
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i);
    const auto half = [&](const char* number) -> ShortcutBlock::Half {
      return {c.rms_norm(p + "input_layernorm." + number, s), c.rms_norm(p + "post_attention_layernorm." + number, s),
              make_mla(c, p + "self_attn." + number + ".", s, m, attention), c.gated_mlp(p + "mlps." + number + ".", s, {.act = act})};
    };
    // Idle experts have no weights; Hugging Face writes some for them.
    for (int e = mixture.n_experts; e < mixture.n_experts + mixture.n_idle; e++)
      for (const char* name : {"gate_proj", "up_proj", "down_proj"}) c.weights.ignore({fmt::format("{}mlp.experts.{}.{}.weight", p, e, name)});
    std::array<ShortcutBlock::Half, 2> halves{half("0"), half("1")};
    c.model.blocks.push_back(std::make_unique<ShortcutBlock>(std::move(halves), c.moe(p + "mlp.", s, mixture)));
  }
  c.weights.refuse_unused("model.layers.", s.n_layers);
  c.finish(c.rms_norm("model.norm", s), "model.embed_tokens.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
