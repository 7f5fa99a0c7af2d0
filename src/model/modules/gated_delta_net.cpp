#include "model/modules/gated_delta_net.h"

#include <cmath>

#include "base/error.h"

namespace ridge {

void GatedDeltaNet::forward(Pass& pass, Tensor out, Tensor x) const {
  const int64_t d_keys = int64_t{p_.n_k_heads} * p_.dk, d_values = int64_t{p_.n_heads} * p_.dv;
  const Tensor qkv = pass.scratch(4, 2 * d_keys + d_values), mixed = pass.scratch(5, qkv.cols), gate = pass.scratch(6, d_values), beta = pass.scratch(7, p_.n_heads);
  const Tensor decay = pass.scratch(8, p_.decay->rows), y = pass.scratch(9, d_values);
  if (p_.qkv[1]) pass.run(Matmul{.out = {qkv.slice_cols(0, d_keys), qkv.slice_cols(d_keys, d_keys), qkv.slice_cols(2 * d_keys, d_values)}, .x = x, .w = p_.qkv});
  else pass.run(Matmul{.out = {qkv}, .x = x, .w = p_.qkv});
  if (p_.gate_low) {
    const Tensor gate_low = pass.scratch(10, p_.gate_low->rows), decay_low = pass.scratch(11, p_.decay_low->rows);
    pass.run(Matmul{.out = {gate_low, decay_low, beta}, .x = x, .w = {p_.gate_low, p_.decay_low, p_.beta}});
    pass.run(Matmul{.out = {gate}, .x = gate_low, .w = {p_.gate}});
    pass.run(Matmul{.out = {decay}, .x = decay_low, .w = {p_.decay}, .bias = {p_.dt_bias}});
  } else {
    pass.run(Matmul{.out = {gate, decay, beta}, .x = x, .w = {p_.gate, p_.decay, p_.beta}, .bias = {Tensor{}, p_.dt_bias}});
  }
  pass.run(p_.conv.op(pass, mixed, qkv, true));
  pass.run(HeadNorm{.x = mixed.slice_cols(0, 2 * d_keys), .weight = {}, .n_heads = 2 * p_.n_k_heads, .eps = 1e-6f, .kind = NormKind::l2});
  pass.run(LinearScan{.out = y, .q = mixed.slice_cols(0, d_keys), .k = mixed.slice_cols(d_keys, d_keys), .v = mixed.slice_cols(2 * d_keys, d_values), .gate = decay,
                      .rate = p_.rate, .beta = beta, .skip = {}, .n_heads = p_.n_heads, .n_k_heads = p_.n_k_heads, .dk = p_.dk, .dv = p_.dv,
                          .write = ScanWrite::delta,
                      .q_scale = 1.0f / std::sqrt(static_cast<float>(p_.dk)), .beta_scale = p_.beta_scale, .kv = pass.kv(p_.kv)});
  p_.norm.run(pass, y, gate);
  pass.run(Matmul{.out = {out}, .x = y, .w = {p_.out}});
}

DeltaShape read_delta_shape(const Config& config, DeltaShape s) {
  s.n_heads = config.integer_or("linear_num_value_heads", s.n_heads, 1, 1 << 16);
  s.n_k_heads = config.integer_or("linear_num_key_heads", s.n_k_heads, 1, 1 << 16);
  s.dk = config.integer_or("linear_key_head_dim", s.dk, 1, 4096);
  s.dv = config.integer_or("linear_value_head_dim", s.dv, 1, 4096);
  s.n_taps = config.integer_or("linear_conv_kernel_dim", s.n_taps, 1, 16);
  s.norm_eps = static_cast<float>(config.number_or("rms_norm_eps", s.norm_eps, 0, 1));
  if (s.n_heads % s.n_k_heads != 0) config.refuse("linear_num_key_heads", fmt::format("it must divide linear_num_value_heads, {}", s.n_heads));
  config.refuse_unless("hidden_act", "silu");
  return s;
}

std::unique_ptr<Module> make_gated_delta_net(Construction& c, const std::string& prefix, int64_t d_model, const DeltaShape& s, DeltaProjections projections) {
  const int64_t d_keys = int64_t{s.n_k_heads} * s.dk, d_values = int64_t{s.n_heads} * s.dv, d_conv = 2 * d_keys + d_values,
      n_decays = int64_t{s.n_heads} * s.n_decays;
  for (const auto& [buffer, cols] : {std::pair{4, d_conv}, {5, d_conv}, {6, d_values}, {7, int64_t{s.n_heads}}, {8, n_decays}, {9,
                                                                                                                                d_values}}) c.scratch(buffer, cols);
  const auto rows_of = [&](const char* name, Rows rows, int64_t cols) { return c.weights.matrix_rows("recurrent", prefix + name + ".weight", rows, cols); };
  const auto whole = [&](const char* name, int64_t rows) { return rows_of(name, {0, rows, rows}, d_model); };
  const bool own_conv = projections == DeltaProjections::interleaved || projections == DeltaProjections::stacked;
  GatedDeltaNet::Parts parts{.n_heads = s.n_heads, .n_k_heads = s.n_k_heads, .dk = s.dk, .dv = s.dv};
  switch (projections) {
    case DeltaProjections::interleaved: {
      const int64_t sharing = s.n_heads / s.n_k_heads, v = sharing * s.dv, run = 2ll * s.dk + 2 * v, all = s.n_k_heads * run, ba = 2ll * s.n_heads;
      const auto part = [&](int64_t first, int64_t width) { return rows_of("in_proj_qkvz", {first, s.n_k_heads * width, all, width, run}, d_model); };
      parts.qkv = {part(0, s.dk), part(s.dk, s.dk), part(2ll * s.dk, v)};
      parts.gate = part(2ll * s.dk + v, v);
      parts.beta = rows_of("in_proj_ba", {0, s.n_heads, ba, sharing, 2 * sharing}, d_model);
      parts.decay = rows_of("in_proj_ba", {sharing, s.n_heads, ba, sharing, 2 * sharing}, d_model);
      break;
    }
    case DeltaProjections::stacked:
      parts.qkv = {whole("in_proj_qkv", d_conv)};
      parts.gate = whole("in_proj_z", d_values), parts.beta = whole("in_proj_b", s.n_heads), parts.decay = whole("in_proj_a", n_decays);
      break;
    case DeltaProjections::separate:
      parts.gate = whole("g_proj", d_values), parts.beta = whole("b_proj", s.n_heads), parts.decay = whole("a_proj", n_decays);
      break;
    case DeltaProjections::low_rank:
      c.scratch(10, s.dv);
      c.scratch(11, s.dk);
      parts.gate_low = whole("g_a_proj", s.dv), parts.gate = rows_of("g_b_proj", {0, d_values, d_values}, s.dv);
      parts.decay_low = whole("f_a_proj", s.dk), parts.decay = rows_of("f_b_proj", {0, n_decays, n_decays}, s.dk);
      parts.beta = whole("b_proj", s.n_heads);
      break;
  }
  if (!own_conv) parts.qkv = {whole("q_proj", d_keys), whole("k_proj", d_keys), whole("v_proj", d_values)};
  const char* const norm = own_conv ? "norm.weight" : "o_norm.weight";
  parts.out = c.weights.matrix("recurrent", prefix + (own_conv ? "out_proj.weight" : "o_proj.weight"), d_model, d_values);
  parts.conv = own_conv ? make_conv(c, {prefix + "conv1d.weight"}, d_conv, s.n_taps)
                        : make_conv(c, {prefix + "q_conv1d.weight", prefix + "k_conv1d.weight", prefix + "v_conv1d.weight"}, d_conv, s.n_taps);
  parts.dt_bias = c.weights.vector("recurrent", prefix + "dt_bias", n_decays);
  parts.rate = c.weights.constant("recurrent", prefix + "A_log", negative_exp(c, prefix + "A_log", s.n_heads));
  parts.norm = {.weight = c.weights.vector("norms", prefix + norm, s.dv), .n_groups = s.n_heads, .eps = s.norm_eps, .act = s.gate_act};
  parts.beta_scale = s.beta_scale;
  parts.kv = add_scan_kv(c, s.n_heads, s.n_k_heads, s.dk, s.dv, s.n_decays);
  return std::make_unique<GatedDeltaNet>(parts);
}

}  // namespace ridge
