#include "model/modules/compressed_attention.h"

#include <cmath>

#include "model/modules/kv_plane.h"

namespace ridge {
namespace {

constexpr int kInputs = 4, kIndexInputs = 5, kIndexQ = 6, kIndexWeights = 7, kSelected = 14;       // scratch buffers

}  // namespace

void CompressedAttention::compress(Pass& pass, const Compressor& c, int buffer, Tensor x, int inputs_plane, int entries_plane) const {
  const int64_t width = c.values->rows;
  const Tensor both = pass.scratch(buffer, 2 * width);
  pass.run(Matmul{.out = {both.slice_cols(0, width), both.slice_cols(width, width)}, .x = x, .w = {c.values, c.gates}});
  pass.run(CompressKv{.x = both, .bias = c.bias, .norm = c.norm, .inputs = plane_alone(pass.kv(p_.window_kv), inputs_plane),
                      .entries = plane_alone(pass.kv(p_.entries_kv), entries_plane), .head_dim = c.head_dim, .rope = p_.rope, .n_rot = p_.n_rot, .eps = p_.eps,
                      .overlap = p_.overlap});
}

void CompressedAttention::forward(Pass& pass, Tensor out, Tensor x) const {
  const int64_t all = int64_t{p_.n_heads} * p_.head_dim;
  const Tensor q = pass.scratch(0, all), kv = pass.scratch(1, p_.head_dim), low = pass.scratch(2, p_.q_a->rows), seen = pass.scratch(3, all);
  const Tensor angles = pass.angles(p_.rope);
  const auto rotate = [&](Tensor heads, int n_heads, int head_dim, Tensor keys, bool back) {
    pass.run(RopeStore{.q = heads, .k = keys, .v = {}, .angles = angles, .n_heads = n_heads, .n_kv_heads = 1, .head_dim = head_dim, .v_dim = 0, .n_rot = p_.n_rot,
                       .rot_first = head_dim - p_.n_rot, .style = RopeStyle::interleaved, .kv = plane_alone(pass.kv(p_.window_kv), 0), .back = back});
  };

  pass.run(Matmul{.out = {low, kv}, .x = x, .w = {p_.q_a, p_.kv}});
  pass.run(HeadNorm{.x = low, .weight = p_.q_norm, .n_heads = 1, .eps = p_.eps});
  pass.run(HeadNorm{.x = kv, .weight = p_.kv_norm, .n_heads = 1, .eps = p_.eps});
  pass.run(Matmul{.out = {q}, .x = low, .w = {p_.q_b}});
  pass.run(HeadNorm{.x = q, .weight = {}, .n_heads = p_.n_heads, .eps = p_.eps});
  rotate(q, p_.n_heads, p_.head_dim, kv, false);

  PagedAttention attention{.out = seen, .q = q, .kv = plane_alone(pass.kv(p_.window_kv), 0), .n_heads = p_.n_heads, .n_kv_heads = 1, .head_dim = p_.head_dim,
                           .v_dim = p_.head_dim, .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p_.head_dim))), .window = p_.window, .sinks = p_.sinks,
                           .value_in_key = true};
  if (p_.every > 0) {
    compress(pass, p_.entries, kInputs, x, 1, 0);
    attention.entries = plane_alone(pass.kv(p_.entries_kv), 0);
  }
  if (const Index& i = p_.index; i.q) {
    const Tensor index_q = pass.scratch(kIndexQ, i.q->rows), weights = pass.scratch(kIndexWeights, i.n_heads);
    attention.selected = pass.scratch(kSelected, i.top_k, 1, FormatId::i32);
    compress(pass, i.keys, kIndexInputs, x, 2, 1);
    pass.run(Matmul{.out = {index_q}, .x = low, .w = {i.q}});
    pass.run(Matmul{.out = {weights}, .x = x, .w = {i.weights}});
    rotate(index_q, i.n_heads, i.keys.head_dim, {}, false);
    pass.run(IndexTopK{.selected = attention.selected, .q = index_q, .weights = weights, .kv = plane_alone(pass.kv(p_.entries_kv), 1), .n_heads = i.n_heads,
                       .head_dim = i.keys.head_dim, .with_hindsight = i.with_hindsight});
  }
  pass.run(attention);
  rotate(seen, p_.n_heads, p_.head_dim, {}, true);

  const auto n_groups = static_cast<int>(p_.o_groups.size());
  const Tensor grouped = pass.scratch(0, n_groups * p_.o_groups[0]->rows);
  pass.run(HeadMatmul{.out = grouped, .x = seen, .w = p_.o_groups.data(), .n_heads = n_groups});
  pass.run(Matmul{.out = {out}, .x = grouped, .w = {p_.o}});
}

std::unique_ptr<Module> make_compressed_attention(Construction& c, const std::string& prefix, const Shape& s, const CompressedAttentionOptions& o) {
  Weights& w = c.weights;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols) { return w.matrix("attention", prefix + name + ".weight", rows, cols); };
  const auto norm = [&](const std::string& name, int64_t n) { return w.vector("norms", prefix + name + ".weight", n); };
  const int64_t all = int64_t{s.n_heads} * o.head_dim, group = all / o.o_groups, o_rows = int64_t{o.o_groups} * o.o_rank;
  CompressedAttention::Parts p{.n_heads = s.n_heads, .head_dim = o.head_dim, .n_rot = o.n_rot, .window = o.window, .q_a = matrix("wq_a", o.q_rank, s.d_model),
                               .q_b = matrix("wq_b", all, o.q_rank), .kv = matrix("wkv", o.head_dim, s.d_model), .o = matrix("wo_b", s.d_model, o_rows),
                               .q_norm = norm("q_norm", o.q_rank), .kv_norm = norm("norm", o.head_dim), .sinks = w.vector("attention", prefix + "attn_sink", s.n_heads),
                               .o_groups = {}, .eps = s.eps, .rope = o.rope, .every = o.every, .overlap = o.indexed,
                               .window_kv = static_cast<int>(c.model.kv_specs.size()), .entries_kv = static_cast<int>(c.model.kv_specs.size()) + 1};
  for (int64_t g = 0; g < o.o_groups; g++) p.o_groups.push_back(w.matrix_rows("attention", prefix + "wo_a.weight", {g * o.o_rank, o.o_rank, o_rows}, group));

  const FormatId kv_format = latent_kv_format(c.options.kv_format, "compressed attention");
  KvSpec window{.window = o.window, .planes = {KvPlane{.n_heads = 1, .head_dim = o.head_dim, .format = kv_format}}}, entries{};
  const auto compressor = [&](const std::string& name, int head_dim, size_t inputs_plane, size_t entries_plane) {
    const int width = o.indexed ? 2 * head_dim : head_dim;
    window.planes[inputs_plane] = {.n_heads = 1, .head_dim = 2 * width, .format = FormatId::f32};
    entries.planes[entries_plane] = {.n_heads = 1, .head_dim = head_dim, .format = kv_format, .every = o.every};
    const std::string bias = prefix + name + ".ape";
    return CompressedAttention::Compressor{.values = matrix(name + ".wkv", width, s.d_model), .gates = matrix(name + ".wgate", width, s.d_model),
                                           .bias = w.constant("attention", bias, w.values(bias, int64_t{o.every} * width), o.every),
                                           .norm = norm(name + ".norm", head_dim), .head_dim = head_dim};
  };
  if (o.every > 0) {
    p.entries = compressor("compressor", o.head_dim, 1, 0);
    window.window = std::max(o.window, o.indexed ? 2 * o.every : o.every);           // an entry is made of positions that far back
    c.scratch(kInputs, 2 * p.entries.values->rows);
  }
  if (o.indexed) {
    p.index = {.q = matrix("indexer.wq_b", int64_t{o.index_heads} * o.index_dim, o.q_rank), .weights = matrix("indexer.weights_proj", o.index_heads, s.d_model),
               .keys = compressor("indexer.compressor", o.index_dim, 2, 1), .n_heads = o.index_heads, .top_k = o.index_top_k,
               .with_hindsight = c.choose_with_hindsight()};
    for (const auto& [buffer, cols] : {std::pair<int, int64_t>{kIndexInputs, 2 * p.index.keys.values->rows}, {kIndexQ, p.index.q->rows}, {kIndexWeights, o.index_heads},
                                       {kSelected, o.index_top_k}})
      c.scratch(buffer, cols);
  }
  c.model.kv_specs.push_back(window);
  if (o.every > 0) c.model.kv_specs.push_back(entries);
  for (const auto& [buffer, cols] : {std::pair<int, int64_t>{0, std::max(all, o_rows)}, {1, o.head_dim}, {2, o.q_rank}, {3, all}}) c.scratch(buffer, cols);
  return std::make_unique<CompressedAttention>(std::move(p));
}

}  // namespace ridge
