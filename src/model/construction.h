// What an architecture file builds with: a family reads its config, then asks for embeddings, ropes, blocks and a head by Hugging Face's names. Defaults are those
// of Hugging Face, so a family states only where it differs from Llama.
#pragma once
#include "model/blocks/sequential.h"
#include "model/config.h"
#include "model/weights.h"

namespace ridge {

enum class QkNorm { none, per_head, full_width };

struct AttentionOptions {
  int rope = -1;                             // of add_rope; -1: no rotation
  int window = 0;
  float scale = 0;                           // 0: head_dim ^ -0.5
  float softcap = 0;
  bool qkv_bias = false, o_bias = false;
  QkNorm qk_norm = QkNorm::none;
  float norm_offset = 0;                     // of q_norm and k_norm
  std::string_view fused_qkv;                // name of one tensor that stacks q, k and v; empty: q_proj, k_proj, v_proj
  std::string_view output = "o_proj";
};

struct MlpOptions {
  ActKind act = ActKind::silu;
  bool bias = false;
  bool fused_gate_up = false;                // gate_up_proj stacks gate and up
};

class Construction {
 public:
  Construction(const Config& config, Weights& weights, const ModelOptions& options, Model& model) : config(config), weights(weights), options(options), model(model) {}
  const Config& config;
  Weights& weights;
  const ModelOptions& options;
  Model& model;

  // Takes the sizes that every model has, and the token embedding [n_vocab, d_model].
  void embed(const std::string& name, const Shape& shape, float scale = 1.0f);
  // Index of the rope with these parameters (read_rope_parameters); equal parameters share one.
  int add_rope(const Json& parameters, const Shape& shape);
  int add_rope(const Shape& shape, double default_theta = 10000.0) { return add_rope(read_rope_parameters(config, "", default_theta), shape); }

  Norm rms_norm(const std::string& name, const Shape& shape, float offset = 0);                  // name without .weight
  Norm layer_norm(const std::string& name, const Shape& shape);                                  // with bias
  std::unique_ptr<Module> attention(const std::string& prefix, const Shape& shape, const AttentionOptions& options);
  std::unique_ptr<Module> gated_mlp(const std::string& prefix, const Shape& shape, const MlpOptions& options);     // gate_proj, up_proj, down_proj
  std::unique_ptr<Module> plain_mlp(const std::string& prefix, const Shape& shape, const MlpOptions& options);     // c_fc, c_proj
  void add_block(SequentialBlock::Part mixer, SequentialBlock::Part ffn, float residual_scale = 1.0f);

  // Final norm and output head: `head`, or the embedding when the config ties them.
  void finish(const Norm& norm, const std::string& embedding, const std::string& head, const Shape& shape, bool tied_by_default);

 private:
  Tensor bias(std::string_view component, const std::string& name, Rows rows, bool wanted);
  std::vector<Json> rope_parameters_;        // of model.ropes
};

// Prefix of a layer's tensors: "model.layers.3."
std::string layer_prefix(int layer, std::string_view layers = "model.layers.");

}  // namespace ridge
