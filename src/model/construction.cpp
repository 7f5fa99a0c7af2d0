#include "model/construction.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/modules/attention.h"
#include "model/modules/mlp.h"

namespace ridge {

std::string layer_prefix(int layer, std::string_view layers) { return fmt::format("{}{}.", layers, layer); }

void Construction::embed(const std::string& name, const Shape& shape, float scale) {
  model.n_vocab = shape.n_vocab;
  model.d_model = shape.d_model;
  model.n_layers = shape.n_layers;
  model.max_context = std::max(model.max_context, shape.max_context);
  model.widest = std::max({shape.d_model, shape.d_ff, shape.n_heads * shape.head_dim});
  model.embed_scale = scale;
  model.embed = weights.table("embedding", name, shape.n_vocab, shape.d_model);
}

int Construction::add_rope(const Json& parameters, const Shape& shape) {
  const auto same = std::find(rope_parameters_.begin(), rope_parameters_.end(), parameters);
  if (same != rope_parameters_.end()) return static_cast<int>(same - rope_parameters_.begin());
  const Config given(parameters, config.where() + ", rope_parameters");
  const int n_rot = static_cast<int>(shape.head_dim * given.number_or("partial_rotary_factor", 1.0, 0.0, 1.0));
  auto rope = make_rope(parameters, {.n_rot = n_rot, .max_context = shape.max_context, .dynamic_exact = options.rope_dynamic_exact});

  // One class serves all ropes of a model, so only one of them may have classes.
  const auto varies = [](const Rope& r) { return r.class_of(std::numeric_limits<int>::max()) != r.class_of(1); };
  if (varies(*rope))
    for (const auto& other : model.ropes)
      if (varies(*other)) config.refuse("rope_parameters", "layer types with different length-dependent rotary embeddings (dynamic, longrope) are not supported together");

  // Types that stretch a model past its trained length often leave max_position_embeddings at that length.
  const std::string type = given.text("rope_type");
  const double factor = given.number_or("factor", 1.0, 1e-6, 1e6);
  const int trained = type == "dynamic" ? shape.max_context : type == "yarn" ? given.integer_or("original_max_position_embeddings", 0, 0, 1 << 28) : 0;
  model.max_context = std::max<int>(model.max_context, static_cast<int>(std::min(trained * factor, double{1 << 28})));

  rope_parameters_.push_back(parameters);
  model.ropes.push_back(std::move(rope));
  return static_cast<int>(model.ropes.size()) - 1;
}

Norm Construction::rms_norm(const std::string& name, const Shape& shape, float offset) {
  return {.weight = weights.vector("norms", name + ".weight", shape.d_model), .eps = shape.eps, .offset = offset};
}

Norm Construction::layer_norm(const std::string& name, const Shape& shape) {
  return {.weight = weights.vector("norms", name + ".weight", shape.d_model), .bias = weights.vector("norms", name + ".bias", shape.d_model), .eps = shape.eps,
          .kind = NormKind::layer};
}

Tensor Construction::bias(std::string_view component, const std::string& name, Rows rows, bool wanted) {
  return wanted ? weights.vector_part(component, name + ".bias", rows) : Tensor{};
}

std::unique_ptr<Module> Construction::attention(const std::string& prefix, const Shape& s, const AttentionOptions& o) {
  const int64_t q_rows = int64_t{s.n_heads} * s.head_dim, kv_rows = int64_t{s.n_kv_heads} * s.head_dim, all = q_rows + 2 * kv_rows;
  const bool fused = !o.fused_qkv.empty();
  const Rows rows[3] = {fused ? Rows{0, q_rows, all} : Rows{0, q_rows, q_rows}, fused ? Rows{q_rows, kv_rows, all} : Rows{0, kv_rows, kv_rows},
                        fused ? Rows{q_rows + kv_rows, kv_rows, all} : Rows{0, kv_rows, kv_rows}};
  const char* const names[3] = {"q_proj", "k_proj", "v_proj"};
  const Weight* projections[3];
  Tensor biases[3];
  for (int i = 0; i < 3; i++) {
    const std::string name = prefix + (fused ? std::string(o.fused_qkv) : names[i]);
    projections[i] = weights.matrix_rows("attention", name + ".weight", rows[i], s.d_model);
    biases[i] = bias("attention", name, rows[i], o.qkv_bias);
  }
  const std::string output = prefix + std::string(o.output);
  Attention::Parts parts{
      .n_heads = s.n_heads, .n_kv_heads = s.n_kv_heads, .head_dim = s.head_dim,
      .q = projections[0], .k = projections[1], .v = projections[2], .o = weights.matrix("attention", output + ".weight", s.d_model, q_rows),
      .q_bias = biases[0], .k_bias = biases[1], .v_bias = biases[2], .o_bias = bias("attention", output, {0, s.d_model, s.d_model}, o.o_bias),
      .norm_eps = s.eps, .norm_offset = o.norm_offset,
      .rope = o.rope, .n_rot = o.rope >= 0 ? 2 * model.ropes[static_cast<size_t>(o.rope)]->n_freqs() : 0,
      .kv = static_cast<int>(model.kv_specs.size()),
      .scale = o.scale != 0 ? o.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_dim))),
      .window = o.window, .softcap = o.softcap,
  };
  if (o.qk_norm != QkNorm::none) {
    const bool full = o.qk_norm == QkNorm::full_width;
    parts.q_norm = weights.vector("norms", prefix + "q_norm.weight", full ? q_rows : s.head_dim);
    parts.k_norm = weights.vector("norms", prefix + "k_norm.weight", full ? kv_rows : s.head_dim);
  }
  const KvPlane plane{.n_heads = s.n_kv_heads, .head_dim = s.head_dim, .format = options.kv_format};
  model.kv_specs.push_back({.window = o.window, .planes = {plane, plane}});
  return std::make_unique<Attention>(parts);
}

std::unique_ptr<Module> Construction::gated_mlp(const std::string& prefix, const Shape& s, const MlpOptions& o) {
  const Rows gate = o.fused_gate_up ? Rows{0, s.d_ff, 2ll * s.d_ff} : Rows{0, s.d_ff, s.d_ff}, up = o.fused_gate_up ? Rows{s.d_ff, s.d_ff, 2ll * s.d_ff} : gate;
  const std::string gate_name = prefix + (o.fused_gate_up ? "gate_up_proj" : "gate_proj"), up_name = prefix + (o.fused_gate_up ? "gate_up_proj" : "up_proj");
  return std::make_unique<Mlp>(Mlp::Parts{
      .gate = weights.matrix_rows("mlp", gate_name + ".weight", gate, s.d_model), .up = weights.matrix_rows("mlp", up_name + ".weight", up, s.d_model),
      .down = weights.matrix("mlp", prefix + "down_proj.weight", s.d_model, s.d_ff), .gate_bias = bias("mlp", gate_name, gate, o.bias),
      .up_bias = bias("mlp", up_name, up, o.bias), .down_bias = bias("mlp", prefix + "down_proj", {0, s.d_model, s.d_model}, o.bias), .act = o.act});
}

std::unique_ptr<Module> Construction::plain_mlp(const std::string& prefix, const Shape& s, const MlpOptions& o) {
  return std::make_unique<Mlp>(Mlp::Parts{
      .gate = weights.matrix("mlp", prefix + "c_fc.weight", s.d_ff, s.d_model), .up = nullptr, .down = weights.matrix("mlp", prefix + "c_proj.weight", s.d_model, s.d_ff),
      .gate_bias = bias("mlp", prefix + "c_fc", {0, s.d_ff, s.d_ff}, o.bias), .down_bias = bias("mlp", prefix + "c_proj", {0, s.d_model, s.d_model}, o.bias), .act = o.act});
}

void Construction::add_block(SequentialBlock::Part mixer, SequentialBlock::Part ffn, float residual_scale) {
  model.blocks.push_back(std::make_unique<SequentialBlock>(std::move(mixer), std::move(ffn), residual_scale));
}

void Construction::finish(const Norm& norm, const std::string& embedding, const std::string& head, const Shape& shape, bool tied_by_default) {
  model.final_norm = norm.weight;
  model.final_norm_bias = norm.bias;
  model.final_norm_eps = norm.eps;
  model.final_norm_offset = norm.offset;
  model.final_norm_kind = norm.kind;
  weights.set_transposed(false);
  const bool tied = config.flag_or("tie_word_embeddings", tied_by_default);
  model.head = tied ? weights.shared_matrix("head", embedding, shape.n_vocab, shape.d_model) : weights.matrix("head", head, shape.n_vocab, shape.d_model);
}

}  // namespace ridge
