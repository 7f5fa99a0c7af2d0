// Nemotron-H: layers of one part each, in the order that layers_block_type (or a pattern of letters) gives: a Mamba-2 mixer, attention without positions, a plain
// MLP with squared relu, or a mixture of such.
#include "model/architectures/registry.h"
#include "model/modules/mamba2.h"

namespace ridge {
namespace {

std::vector<std::string> read_types(const Config& config) {
  std::vector<std::string> types;
  for (const char* key : {"layers_block_type", "layer_types"})
    if (types.empty() && config.has(key)) types = config.texts(key, config.json()[key].size());
  if (!types.empty()) return types;
  for (const char letter : config.text_or("hybrid_override_pattern", "ME*-")) {
    if (letter != 'M' && letter != 'E' && letter != '*' && letter != '-') config.refuse("hybrid_override_pattern", "only M, E, * and - are known");
    types.emplace_back(letter == 'M' ? "linear_attention" : letter == 'E' ? "moe" : letter == '*' ? "full_attention" : "mlp");
  }
  return types;
}

}  // namespace

void build_nemotron_h(Construction& c) {
  const Config& config = c.config;
  const std::vector<std::string> types = read_types(config);
  const auto n_layers = static_cast<int>(types.size());
  Json filled = config.json();
  filled["num_hidden_layers"] = n_layers;
  if (!config.has("intermediate_size")) filled["intermediate_size"] = 21504;
  const Shape s = read_shape(Config(filled, config.where()), {.n_kv_heads = 8, .head_dim = 128, .max_context = 4096, .eps = 1e-5, .eps_key = "layer_norm_epsilon"});
  const auto either = [&](const char* key, const char* old_key) { return config.has(old_key) ? old_key : key; };
  Mamba2Shape mamba{.n_heads = config.integer_or("mamba_num_heads", 128, 1, 1 << 16), .head_dim = config.integer_or("mamba_head_dim", 64, 1, 4096),
                    .n_groups = config.integer_or(either("n_groups", "mamba_n_groups"), 8, 1, 1 << 16), .d_state = config.integer_or("ssm_state_size", 128, 1, 4096),
                    .n_taps = config.integer_or(either("conv_kernel", "mamba_d_conv"), 4, 1, 16), .proj_bias = config.flag_or("use_bias", false),
                    .conv_bias = config.flag_or(either("use_conv_bias", "mamba_conv_bias"), true), .out_bias = config.flag_or("use_bias", false), .eps = s.eps};
  mamba.norm_groups = mamba.n_groups;
  if (mamba.n_heads % mamba.n_groups != 0) config.refuse("n_groups", "it must divide mamba_num_heads");
  mamba.dt_least = static_cast<float>(config.number_or(either("time_step_min", "mamba_dt_min"), 1e-3, 0, 1e6));       // time_step_limit is not used
  config.refuse_unless("mamba_hidden_act", "silu");
  const ActKind act = read_activation(config, "mlp_hidden_act", "relu2");
  const MlpOptions mlp{.act = act, .bias = config.flag_or("mlp_bias", false), .in = "up_proj", .out = "down_proj"};
  Shape shared = s;
  shared.d_ff = config.integer_or("moe_shared_expert_intermediate_size", 7688, 1, 1 << 20);

  const std::string root = c.weights.has("model.embeddings.weight") ? "model." : "backbone.";
  c.embed(root + "embeddings.weight", s);
  for (int i = 0; i < n_layers; i++) {
    const std::string p = layer_prefix(i, root + "layers."), mixer = p + "mixer.", &type = types[static_cast<size_t>(i)];
    const auto module = [&]() -> std::unique_ptr<Module> {
      if (type == "linear_attention" || type == "mamba") return make_mamba2(c, mixer, s.d_model, mamba);
      if (type == "full_attention" || type == "attention") return c.attention(mixer, s, {});
      if (type == "mlp") return c.plain_mlp(mixer, s, mlp);
      if (type != "moe") config.refuse("layers_block_type", "only linear_attention, full_attention, mlp and moe are known");
      if (config.has("moe_latent_size")) config.refuse("moe_latent_size", "experts behind a low rank are not supported");
      MoeOptions moe = read_grouped_moe(config, true);
      moe.act = act, moe.gated = false, moe.shared = "";
      moe.fused_gate_up = "experts.up_proj";
      return c.moe(mixer, s, moe, c.plain_mlp(mixer + "shared_experts.", shared, mlp));
    };
    c.add_layer({.before = c.rms_norm(p + "norm", s), .module = module()});
  }
  c.weights.refuse_unused(root + "layers.", n_layers);
  c.finish(c.rms_norm(root + "norm_f", s), root + "embeddings.weight", "lm_head.weight", s, false);
}

}  // namespace ridge
