#include "model/modules/mla.h"

#include <cmath>

#include "base/error.h"
#include "model/modules/kv_plane.h"

namespace ridge {
namespace {

// The selection stays until the next layer with an index, so its buffer is nobody else's.
constexpr int kIndexSelected = 14;

}  // namespace

void Mla::select(Pass& pass, Tensor x, Tensor q_low) const {
  const Index& i = p_.index;
  const Tensor q = pass.scratch(4, int64_t{i.n_heads} * i.head_dim), k = pass.scratch(5, i.head_dim), weights = pass.scratch(6, i.n_heads);
  const KvRef kv = plane_alone(pass.kv(p_.kv), 1);
  pass.run(Matmul{.out = {q}, .x = q_low, .w = {i.q}});
  pass.run(Matmul{.out = {k, weights}, .x = x, .w = {i.k, i.weights}});
  pass.run(HeadNorm{.x = k, .weight = i.k_norm, .n_heads = 1, .eps = 1e-6f, .bias = i.k_norm_bias, .kind = NormKind::layer});
  pass.run(RopeStore{.q = q, .k = k, .angles = pass.angles(p_.rope), .n_heads = i.n_heads, .n_kv_heads = 1, .head_dim = i.head_dim, .v_dim = 0, .n_rot = p_.n_rot,
                     .style = i.style, .kv = kv});
  pass.run(IndexTopK{.selected = pass.scratch(kIndexSelected, i.top_k, 1, FormatId::i32), .q = q, .weights = weights, .kv = kv, .n_heads = i.n_heads,
                     .head_dim = i.head_dim, .with_hindsight = i.with_hindsight});
}

void Mla::forward(Pass& pass, Tensor out, Tensor x) const {
  const int key = p_.kv_rank + p_.n_rot;
  const KvRef kv = plane_alone(pass.kv(p_.kv), 0);
  const Tensor q = pass.scratch(0, int64_t{p_.n_heads} * (p_.n_nope + p_.n_rot)), latent = pass.scratch(1, key);
  if (p_.q_a) {
    const Tensor low = pass.scratch(2, p_.q_a->rows);
    pass.run(Matmul{.out = {low, latent}, .x = x, .w = {p_.q_a, p_.kv_a}, .bias = {p_.q_a_bias, p_.kv_a_bias}});
    pass.run(HeadNorm{.x = low, .weight = p_.q_a_norm, .n_heads = 1, .eps = p_.norm_eps});
    pass.run(Matmul{.out = {q}, .x = low, .w = {p_.q_b}});
    if (p_.index.q) select(pass, x, low);
  } else {
    pass.run(Matmul{.out = {q, latent}, .x = x, .w = {p_.q_b, p_.kv_a}, .bias = {Tensor{}, p_.kv_a_bias}});
  }
  pass.run(HeadNorm{.x = latent.slice_cols(0, p_.kv_rank), .weight = p_.kv_a_norm, .n_heads = 1, .eps = p_.norm_eps});

  const Tensor query = pass.scratch(3, int64_t{p_.n_heads} * key), seen = pass.scratch(2, int64_t{p_.n_heads} * p_.kv_rank);
  pass.run(HeadMatmul{.out = query, .x = q, .w = p_.k_heads.data(), .n_heads = p_.n_heads});
  pass.run(RopeStore{.q = query, .k = latent, .angles = p_.rope >= 0 ? pass.angles(p_.rope) : Tensor{}, .n_heads = p_.n_heads, .n_kv_heads = 1, .head_dim = key,
                     .v_dim = p_.kv_rank, .n_rot = p_.n_rot, .rot_first = p_.kv_rank, .style = p_.style, .kv = kv});
  pass.run(PagedAttention{.out = seen, .q = query, .kv = kv, .n_heads = p_.n_heads, .n_kv_heads = 1, .head_dim = key, .v_dim = p_.kv_rank, .scale = p_.scale,
                          .value_in_key = true, .selected = p_.sparse ? pass.scratch(kIndexSelected, p_.index.top_k, 1, FormatId::i32) : Tensor{}});
  const Tensor values = pass.scratch(0, int64_t{p_.n_heads} * p_.v_dim);
  pass.run(HeadMatmul{.out = values, .x = seen, .w = p_.v_heads.data(), .n_heads = p_.n_heads});
  pass.run(Matmul{.out = {out}, .x = values, .w = {p_.o}, .bias = {p_.o_bias}});
}

MlaShape read_mla_shape(const Config& config) {
  MlaShape s;
  s.q_rank = config.integer_or("q_lora_rank", 0, 1, 1 << 17);
  s.kv_rank = config.integer("kv_lora_rank", 1, 1 << 14);
  s.n_nope = config.integer("qk_nope_head_dim", 1, 1 << 14);
  s.n_rot = config.integer("qk_rope_head_dim", 2, 1 << 14);
  s.v_dim = config.integer("v_head_dim", 1, 1 << 14);
  if (config.has("qk_head_dim") && config.integer("qk_head_dim", 1, 1 << 15) != s.n_nope + s.n_rot)
    config.refuse("qk_head_dim", fmt::format("it must be qk_nope_head_dim + qk_rope_head_dim, {}", s.n_nope + s.n_rot));
  return s;
}

int add_mla_rope(Construction& c, const Shape& shape, const MlaShape& mla, double default_theta) {
  Shape rotated = shape;
  rotated.head_dim = mla.n_rot;
  Json parameters = read_rope_parameters(c.config, "", default_theta);
  parameters["partial_rotary_factor"] = 1.0;                            // n_rot dimensions are the part
  return c.add_rope(parameters, rotated);
}

float mla_scale(const Config& config, const MlaShape& mla) {
  double scale = 1.0 / std::sqrt(static_cast<double>(mla.n_nope + mla.n_rot));
  const Json parameters = read_rope_parameters(config, "", 10000.0);
  const Config rope(parameters, config.where() + ", rope_parameters");
  const double all_dim = rope.text("rope_type") == "default" ? 0.0 : rope.number_or("mscale_all_dim", 0, 0, 1e3);
  if (all_dim > 0) {
    const double factor = rope.number("factor", 1e-6, 1e6), magnitude = factor <= 1 ? 1.0 : 0.1 * all_dim * std::log(factor) + 1.0;
    scale *= magnitude * magnitude;
  }
  return static_cast<float>(scale);
}

std::unique_ptr<Module> make_mla(Construction& c, const std::string& prefix, const Shape& s, const MlaShape& m, const MlaOptions& o) {
  Weights& w = c.weights;
  const int64_t q_rows = int64_t{s.n_heads} * (m.n_nope + m.n_rot), head_rows = m.n_nope + m.v_dim, all = s.n_heads * head_rows, key = m.kv_rank + m.n_rot;
  const auto bias = [&](const std::string& name, int64_t n) { return o.bias ? w.vector("attention", prefix + name + ".bias", n) : Tensor{}; };
  Mla::Parts p{.n_heads = s.n_heads, .kv_rank = m.kv_rank, .n_nope = m.n_nope, .n_rot = m.n_rot, .v_dim = m.v_dim,
               .q_b = w.matrix("attention", prefix + (m.q_rank ? "q_b_proj.weight" : "q_proj.weight"), q_rows, m.q_rank ? m.q_rank : s.d_model),
               .kv_a = w.matrix("attention", prefix + "kv_a_proj_with_mqa.weight", key, s.d_model),
               .o = w.matrix("attention", prefix + "o_proj.weight", s.d_model, int64_t{s.n_heads} * m.v_dim),
               .kv_a_bias = bias("kv_a_proj_with_mqa", key), .o_bias = bias("o_proj", s.d_model),
               .kv_a_norm = w.scaled_vector("norms", prefix + "kv_a_layernorm.weight", m.kv_rank, o.latent_scale),
               .norm_eps = o.norm_eps, .rope = o.rope, .style = o.style, .kv = static_cast<int>(c.model.kv_specs.size()),
               .scale = o.scale != 0 ? o.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(m.n_nope + m.n_rot))), .sparse = o.sparse};
  if (m.q_rank) {
    p.q_a = w.matrix("attention", prefix + "q_a_proj.weight", m.q_rank, s.d_model);
    p.q_a_bias = bias("q_a_proj", m.q_rank);
    p.q_a_norm = w.scaled_vector("norms", prefix + "q_a_layernorm.weight", m.q_rank, o.q_scale);
  }
  // kv_b_proj stacks the heads, in each the rows of k, then those of v.
  for (int64_t h = 0; h < s.n_heads; h++) {
    p.k_heads.push_back(w.matrix_rows_transposed("attention", prefix + "kv_b_proj.weight", {h * head_rows, m.n_nope, all}, m.kv_rank));
    p.v_heads.push_back(w.matrix_rows("attention", prefix + "kv_b_proj.weight", {h * head_rows + m.n_nope, m.v_dim, all}, m.kv_rank));
  }
  const FormatId kv_format = latent_kv_format(c.options.kv_format, "latent attention");
  KvSpec spec{.planes = {KvPlane{.n_heads = 1, .head_dim = static_cast<int>(key), .format = kv_format}}};
  if (o.sparse) {
    p.index.top_k = o.index_top_k;
    c.scratch(kIndexSelected, o.index_top_k);
  }
  if (o.index) {
    const std::string name = prefix + "indexer.";
    p.index = {.q = w.matrix("attention", name + "wq_b.weight", int64_t{o.index_heads} * o.index_dim, m.q_rank),
               .k = w.matrix("attention", name + "wk.weight", o.index_dim, s.d_model),
               .weights = w.matrix("attention", name + "weights_proj.weight", o.index_heads, s.d_model),
               .k_norm = w.vector("norms", name + "k_norm.weight", o.index_dim), .k_norm_bias = w.vector("norms", name + "k_norm.bias", o.index_dim), .n_heads = o.index_heads, .head_dim = o.index_dim, .top_k = o.index_top_k,
               .style = o.index_style};
    p.index.with_hindsight = c.choose_with_hindsight();
    spec.planes[1] = {.n_heads = 1, .head_dim = o.index_dim, .format = kv_format};
    for (const auto& [buffer, cols] : {std::pair{4, o.index_heads * o.index_dim}, {5, o.index_dim}, {6, o.index_heads}}) c.scratch(buffer, cols);
  }
  const int64_t n = s.n_heads;
  for (const auto& [buffer, cols] : {std::pair<int, int64_t>{0, q_rows}, {0, n * m.v_dim}, {1, key}, {2, m.q_rank}, {2, n * m.kv_rank}, {3, n * key}})
    c.scratch(buffer, cols);
  c.model.kv_specs.push_back(spec);
  return std::make_unique<Mla>(std::move(p));
}

}  // namespace ridge
