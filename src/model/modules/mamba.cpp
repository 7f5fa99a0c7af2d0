#include "model/modules/mamba.h"

#include "base/error.h"
#include "model/modules/recurrent.h"

namespace ridge {

void Mamba::forward(Pass& pass, Tensor out, Tensor input) const {
  const int64_t d = p_.x->rows;
  const Tensor x = pass.scratch(4, d), z = pass.scratch(5, d), mixed = pass.scratch(6, d), dt_low = pass.scratch(7, p_.dt_low->rows), b = pass.scratch(8,
                                                                                                                                                       p_.b->rows);
  const Tensor c = pass.scratch(9, p_.c->rows), dt = pass.scratch(10, d), y = x;
  pass.run(Matmul{.out = {x, z}, .x = input, .w = {p_.x, p_.z}, .bias = {p_.x_bias, p_.z_bias}});
  pass.run(p_.conv.op(pass, mixed, x, true));
  pass.run(Matmul{.out = {dt_low, b, c}, .x = mixed, .w = {p_.dt_low, p_.b, p_.c}});
  for (const auto& [row, weight] : {std::pair{dt_low, p_.dt_norm}, {b, p_.b_norm}, {c, p_.c_norm}})
    if (weight) pass.run(HeadNorm{.x = row, .weight = weight, .n_heads = 1, .eps = p_.eps});
  pass.run(Matmul{.out = {dt}, .x = dt_low, .w = {p_.dt}, .bias = {p_.dt_bias}});
  pass.run(SelectiveScan{.out = y, .x = mixed, .gate = dt, .b = b, .c = c, .rate = p_.rate, .skip = p_.skip, .kv = pass.kv(p_.kv)});
  pass.run(Activate{.out = y, .gate = z, .up = y, .kind = ActKind::silu});
  pass.run(Matmul{.out = {out}, .x = y, .w = {p_.out}, .bias = {p_.out_bias}});
}

int read_dt_rank(const Config& config, std::string_view key, int d_model) {
  const bool automatic = !config.has(key) || config.json()[std::string(key)] == "auto";
  return automatic ? (d_model + 15) / 16 : config.integer(key, 1, 1 << 16);
}

std::unique_ptr<Module> make_mamba(Construction& c, const std::string& prefix, int64_t d_model, const MambaShape& s) {
  const int64_t d = s.d_inner, n = s.n_state, rank = s.dt_rank, all = rank + 2 * n;
  if (d < 1 || d * (n + 1) > 1 << 30) fail("{}: a state of {} channels by {} is not supported", prefix, d, n);
  for (const auto& [buffer, cols] : {std::pair{4, d}, {5, d}, {6, d}, {7, rank}, {8, n}, {9, n}, {10, d}}) c.scratch(buffer, cols);
  const auto rows_of = [&](const char* name, Rows rows, int64_t cols) { return c.weights.matrix_rows("recurrent", prefix + name, rows, cols); };
  const auto bias = [&](const char* name, Rows rows, bool wanted) { return wanted ? c.weights.vector_part("recurrent", prefix + name, rows) : Tensor{}; };
  const auto norm = [&](const char* name, int64_t width) { return s.norms ? c.weights.vector("norms", prefix + name, width) : Tensor{}; };
  const Rows first{0, d, 2 * d}, second{d, d, 2 * d};
  const std::vector<float> by_channel = negative_exp(c, prefix + "A_log", d * n);
  std::vector<float> rate(by_channel.size());
  for (int64_t i = 0; i < d; i++)
    for (int64_t j = 0; j < n; j++) rate[static_cast<size_t>(j * d + i)] = by_channel[static_cast<size_t>(i * n + j)];
  const Conv conv = make_conv(c, {prefix + "conv1d.weight"}, d, s.n_taps, s.conv_bias ? prefix + "conv1d.bias" : "");
  const int state = static_cast<int>(d * n), channels = static_cast<int>(d);
  c.model.kv_specs.push_back({.kind = KvKind::recurrent,
                              .planes = {KvPlane{.n_heads = 1, .head_dim = state, .every = 64}, KvPlane{.n_heads = 1, .head_dim = state + channels, .every = 64},
                                         KvPlane{.n_heads = 2, .head_dim = channels}, KvPlane{.n_heads = 1, .head_dim = s.n_state}}});
  return std::make_unique<Mamba>(Mamba::Parts{
      .x = rows_of("in_proj.weight", first, d_model), .z = rows_of("in_proj.weight", second, d_model), .dt_low = rows_of("x_proj.weight", {0, rank, all}, d),
      .b = rows_of("x_proj.weight", {rank, n, all}, d), .c = rows_of("x_proj.weight", {rank + n, n, all}, d), .dt = rows_of("dt_proj.weight", {0, d, d}, rank),
      .out = rows_of("out_proj.weight", {0, d_model, d_model}, d), .x_bias = bias("in_proj.bias", first, s.proj_bias), .z_bias = bias("in_proj.bias", second,
                                                                                                                                      s.proj_bias),
      .dt_bias = bias("dt_proj.bias", {0, d, d}, true), .out_bias = bias("out_proj.bias", {0, d_model, d_model}, s.proj_bias), .conv = conv,
      .dt_norm = norm("dt_layernorm.weight", rank), .b_norm = norm("b_layernorm.weight", n), .c_norm = norm("c_layernorm.weight", n), .eps = s.eps,
      .rate = c.weights.constant("recurrent", prefix + "A_log", rate, n), .skip = c.weights.constant("recurrent", prefix + "D", c.weights.values(prefix + "D", d)),
      .kv = static_cast<int>(c.model.kv_specs.size()) - 1});
}

}  // namespace ridge
