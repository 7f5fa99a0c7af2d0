#include "model/modules/attention.h"

namespace ridge {

void Attention::forward(Pass& pass, Tensor out, Tensor x) const {
  const int64_t q_cols = int64_t{p_.n_heads} * p_.head_dim, kv_cols = int64_t{p_.n_kv_heads} * p_.head_dim;
  const Tensor q = pass.scratch(0, q_cols), k = pass.scratch(1, kv_cols), v = pass.scratch(2, kv_cols), seen = pass.scratch(3, q_cols);
  pass.run(Matmul{.out = {q, k, v}, .x = x, .w = {p_.q, p_.k, p_.v}, .bias = {p_.q_bias, p_.k_bias, p_.v_bias}});
  for (const auto& [row, weight, n_heads] : {std::tuple{q, p_.q_norm, p_.n_heads}, std::tuple{k, p_.k_norm, p_.n_kv_heads}})
    if (weight) pass.run(HeadNorm{.x = row, .weight = weight, .n_heads = weight.cols == p_.head_dim ? n_heads : 1, .eps = p_.norm_eps, .weight_offset = p_.norm_offset});
  const KvRef& kv = pass.kv(p_.kv);
  pass.run(RopeStore{.q = q, .k = k, .v = v, .angles = p_.rope >= 0 ? pass.angles(p_.rope) : Tensor{}, .n_heads = p_.n_heads, .n_kv_heads = p_.n_kv_heads,
                     .head_dim = p_.head_dim, .v_dim = p_.head_dim, .n_rot = p_.n_rot, .kv = kv});
  pass.run(PagedAttention{.out = seen, .q = q, .kv = kv, .n_heads = p_.n_heads, .n_kv_heads = p_.n_kv_heads, .head_dim = p_.head_dim, .v_dim = p_.head_dim,
                          .scale = p_.scale, .window = p_.window, .softcap = p_.softcap});
  pass.run(Matmul{.out = {out}, .x = seen, .w = {p_.o}, .bias = {p_.o_bias}});
}

}  // namespace ridge
