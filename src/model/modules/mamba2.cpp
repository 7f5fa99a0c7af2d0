#include "model/modules/mamba2.h"

#include <limits>

#include "base/error.h"

namespace ridge {

void Mamba2::forward(Pass& pass, Tensor out, Tensor x) const {
  const int64_t d_inner = int64_t{p_.n_heads} * p_.head_dim, d_keys = int64_t{p_.n_groups} * p_.d_state;
  const Tensor z = pass.scratch(4, d_inner), xbc = pass.scratch(5, d_inner + 2 * d_keys), dt = pass.scratch(6, p_.n_heads);
  const Tensor mixed = pass.scratch(7, xbc.cols), y = pass.scratch(8, d_inner);
  pass.run(Matmul{.out = {z, xbc, dt}, .x = x, .w = {p_.z, p_.xbc, p_.dt}, .bias = {p_.z_bias, p_.xbc_bias, p_.dt_bias}});
  const Tensor scaled[5] = {z, xbc.slice_cols(0, d_inner), xbc.slice_cols(d_inner, d_keys), xbc.slice_cols(d_inner + d_keys, d_keys), dt};
  for (size_t i = 0; i < 5; i++)
    if (p_.scales[i] != 1.0f) pass.run(ScaleCap{.x = scaled[i], .scale = p_.scales[i]});
  pass.run(p_.conv.op(pass, mixed, xbc, true));
  pass.run(LinearScan{.out = y, .q = mixed.slice_cols(d_inner + d_keys, d_keys), .k = mixed.slice_cols(d_inner, d_keys), .v = mixed.slice_cols(0, d_inner),
                      .gate = dt,
                      .rate = p_.rate, .beta = {}, .skip = p_.skip, .n_heads = p_.n_heads, .n_k_heads = p_.n_groups, .dk = p_.d_state, .dv = p_.head_dim,
                      .write = ScanWrite::stepped, .dt_least = p_.dt_least, .dt_most = p_.dt_most, .kv = pass.kv(p_.kv)});
  p_.norm.run(pass, y, z);
  pass.run(Matmul{.out = {out}, .x = y, .w = {p_.out}, .bias = {p_.out_bias}});
  if (p_.out_scale != 1.0f) pass.run(ScaleCap{.x = out, .scale = p_.out_scale});
}

void read_dt_limits(const Config& config, float& least, float& most) {
  if (!config.has("time_step_limit")) return;
  const Json& limits = config.json()["time_step_limit"];
  const auto number = [&](const Json& value) {
    if (value.is_number()) return value.get<float>();
    const bool spelled = value.is_object() && value.contains("__float__") && value["__float__"].is_string();
    const std::string text = value.is_string() ? value.get<std::string>() : spelled ? value["__float__"].get<std::string>() : "";
    if (text != "Infinity" && text != "inf") config.refuse("time_step_limit", "two numbers are needed, of which the second may be Infinity");
    return std::numeric_limits<float>::infinity();
  };
  if (!limits.is_array() || limits.size() != 2) config.refuse("time_step_limit", "two numbers are needed, of which the second may be Infinity");
  least = number(limits[0]);
  most = number(limits[1]);
  if (!(least >= 0 && least <= most)) config.refuse("time_step_limit", "the first number must be at least 0 and at most the second");
}

Mamba2Shape read_mamba2_shape(const Config& config, int d_inner) {
  Mamba2Shape s{.n_heads = config.integer_or("mamba_n_heads", 128, 1, 1 << 16), .head_dim = 0, .n_groups = config.integer_or("mamba_n_groups", 1, 1, 1 << 16),
                .d_state = config.integer_or("mamba_d_state", 256, 1, 4096), .n_taps = config.integer_or("mamba_d_conv", 4, 1, 16)};
  const bool automatic = !config.has("mamba_d_head") || config.json()["mamba_d_head"] == "auto";
  s.head_dim = automatic ? d_inner / s.n_heads : config.integer("mamba_d_head", 1, 4096);
  if (s.head_dim * s.n_heads != d_inner) config.refuse("mamba_n_heads", fmt::format("heads of {} do not make up the {} channels of the layer", s.head_dim, d_inner));
  if (s.n_heads % s.n_groups != 0) config.refuse("mamba_n_groups", fmt::format("it must divide mamba_n_heads, {}", s.n_heads));
  s.proj_bias = s.out_bias = config.flag_or("mamba_proj_bias", false);
  s.conv_bias = config.flag_or("mamba_conv_bias", true);
  s.eps = static_cast<float>(config.number_or("rms_norm_eps", 1e-5, 0, 1));
  read_dt_limits(config, s.dt_least, s.dt_most);
  return s;
}

std::unique_ptr<Module> make_mamba2(Construction& c, const std::string& prefix, int64_t d_model, const Mamba2Shape& s) {
  const int64_t d_inner = int64_t{s.n_heads} * s.head_dim, d_conv = d_inner + 2ll * s.n_groups * s.d_state, all = d_inner + d_conv + s.n_heads;
  for (const auto& [buffer, cols] : {std::pair{4, d_inner}, {5, d_conv}, {6, int64_t{s.n_heads}}, {7, d_conv}, {8, d_inner}}) c.scratch(buffer, cols);
  const Rows z{0, d_inner, all}, xbc{d_inner, d_conv, all}, dt{d_inner + d_conv, s.n_heads, all};
  const auto in = [&](Rows rows) { return c.weights.matrix_rows("recurrent", prefix + "in_proj.weight", rows, d_model); };

  // The input's scale is taken after the projection, and dt's bias before its scale: (W x) s m + b m + d = (W x + b / s + d / (s m)) s m.
  const float dt_scale = s.in_scale * s.scales[4];
  std::vector<float> dt_bias = c.weights.values(prefix + "dt_bias", s.n_heads), in_bias(static_cast<size_t>(all), 0.0f);
  if (s.proj_bias) in_bias = c.weights.values(prefix + "in_proj.bias", all);
  for (float& b : in_bias) b /= s.in_scale;
  for (size_t h = 0; h < dt_bias.size(); h++) dt_bias[h] = dt_bias[h] / dt_scale + in_bias[static_cast<size_t>(dt.first) + h];
  const auto bias = [&](Rows rows) {
    const std::vector<float> part(in_bias.begin() + rows.first, in_bias.begin() + rows.first + rows.n);
    return s.proj_bias ? c.weights.constant("recurrent", prefix + "in_proj.bias", part) : Tensor{};
  };

  Mamba2::Parts parts{
      .n_heads = s.n_heads, .head_dim = s.head_dim, .n_groups = s.n_groups, .d_state = s.d_state,
      .z = in(z), .xbc = in(xbc), .dt = in(dt), .out = c.weights.matrix("recurrent", prefix + "out_proj.weight", d_model, d_inner),
      .z_bias = bias(z), .xbc_bias = bias(xbc), .dt_bias = c.weights.constant("recurrent", prefix + "dt_bias", dt_bias),
      .out_bias = s.out_bias ? c.weights.vector("recurrent", prefix + "out_proj.bias", d_model) : Tensor{},
      .conv = make_conv(c, {prefix + "conv1d.weight"}, d_conv, s.n_taps, s.conv_bias ? prefix + "conv1d.bias" : ""),
      .rate = c.weights.constant("recurrent", prefix + "A_log", negative_exp(c, prefix + "A_log", s.n_heads)),
      .skip = c.weights.constant("recurrent", prefix + "D", c.weights.values(prefix + "D", s.n_heads)),
      .norm = {.weight = s.norm ? c.weights.vector("norms", prefix + "norm.weight", d_inner) : Tensor{}, .n_groups = s.norm_groups, .eps = s.eps,
               .gate_first = !s.norm_before_gate},
      .dt_least = s.dt_least, .dt_most = s.dt_most, .scales = s.scales, .out_scale = s.out_scale,
      .kv = add_scan_kv(c, s.n_heads, s.n_groups, s.d_state, s.head_dim, 1),
  };
  for (float& scale : parts.scales) scale *= s.in_scale;
  return std::make_unique<Mamba2>(parts);
}

}  // namespace ridge
