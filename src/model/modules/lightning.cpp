#include "model/modules/lightning.h"

#include <cmath>

namespace ridge {

void Lightning::forward(Pass& pass, Tensor out, Tensor x) const {
  const int64_t d = int64_t{p_.n_heads} * p_.head_dim;
  const Tensor qkv = pass.scratch(4, 3 * d), q = qkv.slice_cols(0, d), k = qkv.slice_cols(d, d), v = qkv.slice_cols(2 * d, d), gate = pass.scratch(5, d),
      y = pass.scratch(6, d);
  pass.run(Matmul{.out = {q, k, v}, .x = x, .w = {p_.q, p_.k, p_.v}});
  pass.run(Matmul{.out = {gate}, .x = x, .w = {p_.gate}});
  pass.run(Activate{.out = qkv, .gate = qkv, .up = {}, .kind = p_.act});
  pass.run(LinearScan{.out = y, .q = q, .k = k, .v = v, .gate = {}, .rate = p_.rate, .beta = {}, .skip = {}, .n_heads = p_.n_heads, .n_k_heads = p_.n_heads,
                      .dk = p_.head_dim,
                      .dv = p_.head_dim, .write = ScanWrite::plain, .kv = pass.kv(p_.kv)});
  p_.norm.run(pass, y, gate);
  pass.run(Matmul{.out = {out}, .x = y, .w = {p_.out}});
}

std::unique_ptr<Module> make_lightning(Construction& c, const std::string& prefix, const Shape& s, int layer, ActKind act) {
  const int64_t head = s.head_dim, d = s.n_heads * head;
  for (const auto& [buffer, cols] : {std::pair{4, 3 * d}, {5, d}, {6, d}}) c.scratch(buffer, cols);
  const auto part = [&](int64_t i) { return c.weights.matrix_rows("recurrent", prefix + "qkv_proj.weight", {i * head, d, 3 * d, head, 3 * head}, s.d_model); };
  // Slopes as in ALiBi, flatter from layer to layer.
  const double base = std::pow(2.0, -8.0 / s.n_heads), factor = 1.0 - layer / (s.n_layers - 1 + 1e-5) + 1e-5;
  std::vector<float> rate;
  for (int h = 0; h < s.n_heads; h++) rate.push_back(static_cast<float>(-std::pow(base, h + 1) * factor));
  return std::make_unique<Lightning>(Lightning::Parts{
      .n_heads = s.n_heads, .head_dim = s.head_dim, .q = part(0), .k = part(1), .v = part(2), .gate = c.weights.matrix("recurrent",
                                                                                                                       prefix + "output_gate.weight", d, s.d_model),
      .out = c.weights.matrix("recurrent", prefix + "out_proj.weight", s.d_model, d), .rate = c.weights.constant("recurrent", prefix + "slope_rate", rate),
          .act = act,
      .norm = {.weight = c.weights.vector("norms", prefix + "norm.weight", d), .eps = 1e-6f, .act = ActKind::sigmoid},
      .kv = add_scan_kv(c, s.n_heads, s.n_heads, s.head_dim, s.head_dim, 1)});
}

}  // namespace ridge
