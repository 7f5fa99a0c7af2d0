#include "model/construction.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/modules/attention.h"
#include "model/modules/layer_input.h"
#include "model/modules/mlp.h"

namespace ridge {

std::string layer_prefix(int layer, std::string_view layers) { return fmt::format("{}{}.", layers, layer); }

void Construction::embed(const std::string& name, const Shape& shape, float scale) {
  model.n_vocab = shape.n_vocab;
  model.d_model = shape.d_model;
  model.n_layers = shape.n_layers;
  model.max_context = std::max(model.max_context, shape.max_context);
  model.embed_scale = scale;
  model.embed = weights.table("embedding", name, shape.n_vocab, shape.d_model);
}

int Construction::add_rope(const Json& parameters, const Shape& shape) {
  Json key = parameters;
  key["head_dim"] = shape.head_dim;
  const auto same = std::find(rope_parameters_.begin(), rope_parameters_.end(), key);
  if (same != rope_parameters_.end()) return static_cast<int>(same - rope_parameters_.begin());
  const Config given(parameters, config.where() + ", rope_parameters");
  // Where rotation is proportional, the dimensions left out are frequencies of 0.
  const double part = given.text_or("rope_type", "default") == "proportional" ? 1.0 : given.number_or("partial_rotary_factor", 1.0, 0.0, 1.0);
  const int n_rot = static_cast<int>(shape.head_dim * part);
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

  rope_parameters_.push_back(std::move(key));
  model.ropes.push_back(std::move(rope));
  return static_cast<int>(model.ropes.size()) - 1;
}

void Construction::scratch(int i, int64_t cols, int64_t rows_per_token) {
  int64_t& floats = model.scratch[static_cast<size_t>(i)];
  floats = std::max(floats, (cols + 15) / 16 * 16 * rows_per_token);
}

Norm Construction::rms_norm(const std::string& name, const Shape& shape, float offset) {
  return {.weight = weights.vector("norms", name + ".weight", shape.d_model), .eps = shape.eps, .offset = offset};
}

Norm Construction::layer_norm(const std::string& name, const Shape& shape, bool bias) {
  return {.weight = weights.vector("norms", name + ".weight", shape.d_model), .bias = bias ? weights.vector("norms", name + ".bias", shape.d_model) : Tensor{},
          .eps = shape.eps, .kind = NormKind::layer};
}

Tensor Construction::bias(std::string_view component, const std::string& name, Rows rows, bool wanted) {
  return wanted ? weights.vector_part(component, name + ".bias", rows) : Tensor{};
}

HeadNormPart Construction::head_norm(const std::string& name, int n_heads, const Shape& s, const AttentionOptions& o) {
  HeadNormPart norm{.wanted = o.qk_norm != QkNorm::none, .whole_row = o.qk_norm == QkNorm::full_width, .eps = s.eps, .offset = o.norm_offset, .kind = o.norm_kind};
  if (!norm.wanted || o.qk_norm == QkNorm::weightless) return norm;
  const int64_t n = (o.qk_norm == QkNorm::per_head ? 1 : int64_t{n_heads}) * s.head_dim;
  if (o.qk_norm == QkNorm::own_weights) {
    std::vector<std::string> names;
    for (int h = 0; h < n_heads; h++) names.push_back(fmt::format("{}.norms.{}.weight", name, h));
    norm.weight = weights.vectors("norms", names, s.head_dim);
    return norm;
  }
  norm.weight = weights.vector("norms", name + ".weight", n);
  norm.bias = bias("norms", name, {0, n, n}, o.norm_bias);
  return norm;
}

std::unique_ptr<Module> Construction::attention(const std::string& prefix, const Shape& s, const AttentionOptions& o) {
  const int64_t d = s.head_dim, d_v = o.v_dim > 0 ? o.v_dim : d, group = s.n_heads / s.n_kv_heads;
  const int64_t q_rows = s.n_heads * d, k_rows = s.n_kv_heads * d, v_rows = s.n_kv_heads * d_v, seen = s.n_heads * d_v, all = q_rows + k_rows + v_rows;
  Rows q{0, q_rows, q_rows}, k{0, k_rows, k_rows}, v{0, v_rows, v_rows}, gate{};
  const bool fused = !o.fused_qkv.empty();
  if (fused && o.fused_order == QkvOrder::stacked) {
    q = {0, q_rows, all}, k = {q_rows, k_rows, all}, v = {q_rows + k_rows, v_rows, all};
  } else if (fused) {
    const int64_t stride = group * d + d + d_v;
    q = {0, q_rows, all, group * d, stride}, k = {group * d, k_rows, all, d, stride}, v = {group * d + d, v_rows, all, d_v, stride};
  } else if (o.gate == OutputGate::in_q_proj) {
    q = {0, q_rows, q_rows + seen, d, d + d_v}, gate = {d, seen, q_rows + seen, d_v, d + d_v};
  }
  const auto name_of_part = [&](const char* part) { return prefix + (fused ? std::string(o.fused_qkv) : part); };
  const auto projection = [&](const char* part, Rows rows) { return weights.matrix_rows("attention", name_of_part(part) + ".weight", rows, s.d_model); };
  const auto projection_bias = [&](const char* part, Rows rows) { return bias("attention", name_of_part(part), rows, o.qkv_bias); };
  const bool shared = o.kv_of >= 0, gated = o.gate != OutputGate::none, has_v = !shared && !o.values_are_keys;
  const std::string output = prefix + std::string(o.output);
  Attention::Parts parts{
      .n_heads = s.n_heads, .n_kv_heads = s.n_kv_heads, .head_dim = s.head_dim, .v_dim = static_cast<int>(d_v),
      .q = projection("q_proj", q), .k = shared ? nullptr : projection("k_proj", k), .v = has_v ? projection("v_proj", v) : nullptr,
      .o = weights.matrix("attention", output + ".weight", s.d_model, seen),
      .q_bias = projection_bias("q_proj", q), .k_bias = shared ? Tensor{} : projection_bias("k_proj", k), .v_bias = has_v ? projection_bias("v_proj", v) : Tensor{},
      .o_bias = bias("attention", output, {0, s.d_model, s.d_model}, o.o_bias),
      .gate = gated ? projection("q_proj", gate) : nullptr, .gate_bias = gated ? projection_bias("q_proj", gate) : Tensor{},
      .q_norm = head_norm(prefix + std::string(o.q_norm), s.n_heads, s, o), .k_norm = shared ? HeadNormPart{} : head_norm(prefix + std::string(o.k_norm), s.n_kv_heads, s, o),
      .v_norm = {.wanted = o.v_norm, .eps = s.eps}, .norm_after_rope = o.norm_after_rope,
      .rope = o.rope, .n_rot = o.rope >= 0 ? 2 * model.ropes[static_cast<size_t>(o.rope)]->n_freqs() : 0, .style = o.style,
      .kv = shared ? o.kv_of : static_cast<int>(model.kv_specs.size()),
      .scale = o.scale != 0 ? o.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_dim))),
      .window = o.window, .chunk = o.chunk, .softcap = o.softcap, .value_scale = o.value_scale,
      .sinks = o.sinks.empty() ? Tensor{} : weights.vector("attention", prefix + std::string(o.sinks), s.n_heads),
      .temperature = o.temperature, .temperature_floor = o.temperature_floor, .temperature_offset = o.temperature_offset,
  };
  for (const auto& [buffer, cols] : {std::pair{0, q_rows}, {1, k_rows}, {2, v_rows}, {3, seen}}) scratch(buffer, cols);
  if (gated) scratch(12, seen);
  if (!shared) {
    // Nobody looks back past a chunk's beginning, so its positions die like those of a window.
    const int window = o.window > 0 && o.chunk > 0 ? std::min(o.window, o.chunk) : std::max(o.window, o.chunk);
    const auto plane = [&](int64_t dims) { return KvPlane{.n_heads = s.n_kv_heads, .head_dim = static_cast<int>(dims), .format = options.kv_format}; };
    model.kv_specs.push_back({.window = window, .planes = {plane(d), plane(d_v)}});
  }
  return std::make_unique<Attention>(parts);
}

std::unique_ptr<Module> Construction::gated_mlp(const std::string& prefix, const Shape& s, const MlpOptions& o) {
  for (const int buffer : {0, 1}) scratch(buffer, s.d_ff);
  const Rows gate = o.fused_gate_up ? Rows{0, s.d_ff, 2ll * s.d_ff} : Rows{0, s.d_ff, s.d_ff}, up = o.fused_gate_up ? Rows{s.d_ff, s.d_ff, 2ll * s.d_ff} : gate;
  const std::string gate_name = prefix + std::string(o.fused_gate_up ? o.fused : o.names.gate), up_name = prefix + std::string(o.fused_gate_up ? o.fused : o.names.up);
  const std::string down_name = prefix + std::string(o.names.down);
  return std::make_unique<Mlp>(Mlp::Parts{
      .gate = weights.matrix_rows("mlp", gate_name + ".weight", gate, s.d_model), .up = weights.matrix_rows("mlp", up_name + ".weight", up, s.d_model),
      .down = weights.matrix("mlp", down_name + ".weight", s.d_model, s.d_ff), .gate_bias = bias("mlp", gate_name, gate, o.bias),
      .up_bias = bias("mlp", up_name, up, o.bias), .down_bias = bias("mlp", down_name, {0, s.d_model, s.d_model}, o.bias), .act = o.act, .gate_scale = o.gate_scale,
      .out_scale = o.out_scale});
}

std::unique_ptr<Module> Construction::plain_mlp(const std::string& prefix, const Shape& s, const MlpOptions& o) {
  scratch(0, s.d_ff);
  const std::string in = prefix + std::string(o.in), out = prefix + std::string(o.out);
  return std::make_unique<Mlp>(Mlp::Parts{
      .gate = weights.matrix("mlp", in + ".weight", s.d_ff, s.d_model), .up = nullptr, .down = weights.matrix("mlp", out + ".weight", s.d_model, s.d_ff),
      .gate_bias = bias("mlp", in, {0, s.d_ff, s.d_ff}, o.bias), .down_bias = bias("mlp", out, {0, s.d_model, s.d_model}, o.bias), .act = o.act});
}

void Construction::add_layer_inputs(const std::string& root, const Shape& s, int width, int n_vocab) {
  if (n_vocab < s.n_vocab) config.refuse("vocab_size_per_layer_input", fmt::format("tokens from there to vocab_size, {}, would have no input", s.n_vocab));
  const int64_t cols = int64_t{s.n_layers} * width;
  scratch(kLayerInputs, cols);
  scratch(kLayerProjection, cols);
  model.blocks.push_back(std::make_unique<LayerInputsBlock>(LayerInputsBlock::Parts{
      .table = weights.table("layer inputs", root + "embed_tokens_per_layer.weight", n_vocab, cols),
      .projection = weights.matrix("layer input projections", root + "per_layer_model_projection.weight", cols, s.d_model),
      .norm = weights.vector("norms", root + "per_layer_projection_norm.weight", width), .eps = s.eps, .n_layers = s.n_layers}));
}

std::unique_ptr<Module> Construction::layer_input(const std::string& prefix, const Shape& s, int layer, int width, ActKind act) {
  scratch(0, width);
  return std::make_unique<LayerInput>(LayerInput::Parts{
      .layer = layer, .n_layers = s.n_layers, .gate = weights.matrix("layer input projections", prefix + "per_layer_input_gate.weight", width, s.d_model),
      .projection = weights.matrix("layer input projections", prefix + "per_layer_projection.weight", s.d_model, width), .act = act});
}

void Construction::add_block(SequentialBlock::Part mixer, SequentialBlock::Part ffn, float residual_scale) {
  std::vector<SequentialBlock::Part> parts;
  parts.push_back(std::move(mixer));
  parts.push_back(std::move(ffn));
  add_block(std::move(parts), residual_scale, 1.0f);
}

void Construction::add_layer(SequentialBlock::Part part, float residual_scale) {
  std::vector<SequentialBlock::Part> parts;
  parts.push_back(std::move(part));
  add_block(std::move(parts), residual_scale, 1.0f);
}

void Construction::add_block(std::vector<SequentialBlock::Part> parts, float residual_scale, float output_scale) {
  if (std::any_of(parts.begin(), parts.end(), [](const SequentialBlock::Part& part) { return bool(part.after); })) scratch(2, model.d_model);
  model.blocks.push_back(std::make_unique<SequentialBlock>(std::move(parts), residual_scale, output_scale));
}

void Construction::add_parallel_block(ParallelBlock::Parts parts) {
  scratch(13, model.d_model);
  model.blocks.push_back(std::make_unique<ParallelBlock>(std::move(parts)));
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
