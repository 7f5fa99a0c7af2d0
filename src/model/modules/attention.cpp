#include "model/modules/attention.h"

namespace ridge {
namespace {

void run_norm(Pass& pass, const Tensor& x, const HeadNormPart& norm, int n_heads) {
  if (!norm.wanted) return;
  pass.run(HeadNorm{.x = x, .weight = norm.weight, .n_heads = norm.whole_row ? 1 : n_heads, .eps = norm.eps, .weight_offset = norm.offset, .bias = norm.bias,
                    .kind = norm.kind});
}

}  // namespace

void Attention::forward(Pass& pass, Tensor out, Tensor x) const {
  const int64_t q_cols = int64_t{p_.n_heads} * p_.head_dim, k_cols = int64_t{p_.n_kv_heads} * p_.head_dim, v_cols = int64_t{p_.n_kv_heads} * p_.v_dim;
  const Tensor q = pass.scratch(0, q_cols), seen = pass.scratch(3, int64_t{p_.n_heads} * p_.v_dim);
  const Tensor k = p_.k ? pass.scratch(1, k_cols) : Tensor{}, v = p_.k ? pass.scratch(2, v_cols) : Tensor{};
  const KvRef& kv = pass.kv(p_.kv);
  const Tensor angles = p_.rope >= 0 ? pass.angles(p_.rope) : Tensor{};
  const auto norm_heads = [&] {
    run_norm(pass, q, p_.q_norm, p_.n_heads);
    if (k) run_norm(pass, k, p_.k_norm, p_.n_kv_heads);
  };
  const auto rope_store = [&](const Tensor& rotated, int n_heads, const Tensor& keys, const Tensor& values, const Tensor& by) {
    pass.run(RopeStore{.q = rotated, .k = keys, .v = values, .angles = by, .n_heads = n_heads, .n_kv_heads = p_.n_kv_heads, .head_dim = p_.head_dim, .v_dim = p_.v_dim,
                       .n_rot = p_.n_rot, .rot_first = p_.rot_first, .style = p_.style, .kv = kv});
  };

  pass.run(Matmul{.out = {q, k, v}, .x = x, .w = {p_.q, p_.k, p_.v ? p_.v : p_.k}, .bias = {p_.q_bias, p_.k_bias, p_.v ? p_.v_bias : p_.k_bias}});
  if (v) {
    run_norm(pass, v, p_.v_norm, p_.n_kv_heads);
    if (p_.value_scale != 1.0f) pass.run(ScaleCap{.x = v, .scale = p_.value_scale});
  }
  if (p_.norm_after_rope && angles) {
    // Rotations alone first (without k an op stores nothing), then the norms, then what is left of the store.
    rope_store(q, p_.n_heads, {}, {}, angles);
    if (k) rope_store(k, p_.n_kv_heads, {}, {}, angles);
    norm_heads();
    if (k) rope_store(q, p_.n_heads, k, v, {});
  } else {
    norm_heads();
    if (k || angles) rope_store(q, p_.n_heads, k, v, angles);
  }
  if (p_.temperature != 0) pass.run(ScaleByPosition{.x = q, .factor = p_.temperature, .floor_scale = p_.temperature_floor, .offset = p_.temperature_offset});
  pass.run(PagedAttention{.out = seen, .q = q, .kv = kv, .n_heads = p_.n_heads, .n_kv_heads = p_.n_kv_heads, .head_dim = p_.head_dim, .v_dim = p_.v_dim,
                          .scale = p_.scale, .window = p_.window, .softcap = p_.softcap, .sinks = p_.sinks, .chunk = p_.chunk,
                          .may_use_bf16 = p_.o->arithmetic.x == FormatId::i8});
  if (p_.gate) {
    const Tensor gate = pass.scratch(12, p_.gate->rows);
    pass.run(Matmul{.out = {gate}, .x = x, .w = {p_.gate}, .bias = {p_.gate_bias}});
    pass.run(Activate{.out = seen, .gate = gate, .up = seen, .kind = ActKind::sigmoid});
  }
  pass.run(Matmul{.out = {out}, .x = seen, .w = {p_.o}, .bias = {p_.o_bias}});
}

}  // namespace ridge
