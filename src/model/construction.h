// What an architecture file builds with: a family reads its config, then asks for embeddings, ropes, blocks and a head by Hugging Face's names. Defaults are those
// of Hugging Face, so a family states only where it differs from Llama.
#pragma once
#include "model/blocks/parallel.h"
#include "model/blocks/sequential.h"
#include "model/config.h"
#include "model/modules/attention.h"
#include "model/weights.h"

namespace ridge {

// Norms on q and k: each head on its own with one weight for all of them, the row as a whole, heads with a weight each, or heads without weights.
enum class QkNorm { none, per_head, full_width, own_weights, weightless };
// What one tensor for q, k and v holds: all of q, then k, then v; or by KV head: its query heads, its k, its v (GPT-NeoX).
enum class QkvOrder { stacked, by_kv_head };
// A gate on what attention saw: none, or rows of q_proj that follow each head's own (Qwen3-Next).
enum class OutputGate { none, in_q_proj };

struct AttentionOptions {
  int rope = -1;                             // of add_rope; -1: no rotation
  RopeStyle style = RopeStyle::half;
  int window = 0, chunk = 0;
  float scale = 0;                           // 0: head_dim ^ -0.5
  float softcap = 0;
  int v_dim = 0;                             // of a head's values; 0: head_dim
  float value_scale = 1.0f;
  bool qkv_bias = false, o_bias = false;
  QkNorm qk_norm = QkNorm::none;
  float norm_offset = 0;                     // of q_norm and k_norm
  NormKind norm_kind = NormKind::rms;
  bool norm_bias = false, norm_after_rope = false;
  bool v_norm = false;                       // rms, without weights
  std::string_view sinks;                    // name of the tensor; empty: none
  OutputGate gate = OutputGate::none;
  float temperature = 0;                     // of ScaleByPosition on q; 0: none
  int temperature_floor = 1, temperature_offset = 0;
  int kv_of = -1;                            // handle of an earlier layer whose KV this one reads; -1: its own
  bool values_are_keys = false;              // no v_proj: values are k as projected
  std::string_view fused_qkv;                // name of one tensor for q, k and v; empty: q_proj, k_proj, v_proj
  QkvOrder fused_order = QkvOrder::stacked;
  std::string_view output = "o_proj", q_norm = "q_norm", k_norm = "k_norm";
};

// Names of a feed-forward part's matrices.
struct FfnNames { std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj"; };

struct MlpOptions {
  ActKind act = ActKind::silu;
  bool bias = false;
  bool fused_gate_up = false;                // gate_up_proj stacks gate and up
  FfnNames names{};                          // of a gated MLP
  std::string_view fused = "gate_up_proj";
  float gate_scale = 1.0f, out_scale = 1.0f; // on the gate before it is activated, and on what comes out
  std::string_view in = "c_fc", out = "c_proj";    // of a plain MLP
};

// A mixture of experts. Its experts are single tensors (`experts` + number + name + .weight), or fused ones: gate and up of all experts in one tensor, down of all
// in another, or each of the three in one (`experts` + name + .weight); which, is read from the file.
struct MoeOptions {
  int n_experts = 0, top_k = 0, d_ff = 0;    // d_ff: of one expert
  int n_idle = 0;                            // experts that return their input
  ActKind act = ActKind::silu;
  float limit = 0;                           // of Activate
  bool gated = true;                         // false: down(act(up x))
  bool bias = false;                         // of single experts: name + .bias; of fused ones: name + _bias
  // Routing, as MoeRoute has it.
  GateKind gate = GateKind::softmax;
  bool gate_chosen = false, renormalize = false;
  int n_groups = 1, top_groups = 1, group_best = 1;
  float norm_eps = 0, norm_least = 0, scale = 1.0f;
  bool weigh_inputs = false;                 // the weights scale what goes into an expert, not what comes out
  std::string_view router = "gate";
  bool router_bias = false;                  // added to the logits
  std::string_view choice_bias;              // tensor for the choice alone; empty: none
  std::string_view hash;                     // tensor that gives the experts of a token id; empty: none
  std::string_view experts = "experts.";
  FfnNames names;
  std::string_view fused_gate_up = "experts.gate_up_proj", fused_down = "experts.down_proj";      // [n_experts, 2 d_ff, d_model], [n_experts, d_model, d_ff]
  bool transposed = false;                   // fused plain numbers lie as [n_experts, inputs, outputs]
  bool interleaved = false;                  // gate and up take turns in the fused tensor; else gate comes first
  // The shared experts, as one of their summed width; none where the prefix is empty.
  std::string_view shared;
  int d_shared = 0;
  FfnNames shared_names;
  std::string_view shared_gate;              // name of the matrix [1, d_model] whose sigmoid scales them; empty: none
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

  // For layers with an index: whether it chooses with hindsight (IndexTopK); the sequence is then computed again with every token.
  bool choose_with_hindsight() { return model.restarts_every_token = options.index_with_hindsight; }
  // Room for [tokens * rows_per_token, cols] in scratch buffer i while a step runs.
  void scratch(int i, int64_t cols, int64_t rows_per_token = 1);

  Norm rms_norm(const std::string& name, const Shape& shape, float offset = 0);                  // name without .weight
  Norm layer_norm(const std::string& name, const Shape& shape, bool bias = true);
  std::unique_ptr<Module> attention(const std::string& prefix, const Shape& shape, const AttentionOptions& options);
  std::unique_ptr<Module> gated_mlp(const std::string& prefix, const Shape& shape, const MlpOptions& options);     // gate_proj, up_proj, down_proj
  std::unique_ptr<Module> plain_mlp(const std::string& prefix, const Shape& shape, const MlpOptions& options);     // c_fc, c_proj
  // `shared` takes the place of options.shared where it is something else than a gated MLP under the mixture's prefix.
  std::unique_ptr<Module> moe(const std::string& prefix, const Shape& shape, const MoeOptions& options, std::unique_ptr<Module> shared = nullptr);
  void add_layer_inputs(const std::string& root, const Shape& shape, int width, int n_vocab);                      // Gemma 4: before the first layer
  std::unique_ptr<Module> layer_input(const std::string& prefix, const Shape& shape, int layer, int width, ActKind act);
  void add_block(SequentialBlock::Part mixer, SequentialBlock::Part ffn, float residual_scale = 1.0f);
  void add_layer(SequentialBlock::Part part, float residual_scale = 1.0f);                                         // a layer of one part
  void add_block(std::vector<SequentialBlock::Part> parts, float residual_scale, float output_scale);
  void add_parallel_block(ParallelBlock::Parts parts);

  // Final norm and output head: `head`, or the embedding when the config ties them.
  void finish(const Norm& norm, const std::string& embedding, const std::string& head, const Shape& shape, bool tied_by_default);

 private:
  Tensor bias(std::string_view component, const std::string& name, Rows rows, bool wanted);
  HeadNormPart head_norm(const std::string& name, int n_heads, const Shape& shape, const AttentionOptions& options);
  std::vector<Json> rope_parameters_;        // of model.ropes, with their head_dim
};

// What DeepSeek-V3 and those after it state of their mixture: sigmoid gates, a bias for the choice (gate.e_score_correction_bias), groups of experts scored by
// their best two, shared experts.
MoeOptions read_grouped_moe(const Config& config, bool renormalize_by_default);

// Prefix of a layer's tensors: "model.layers.3."
std::string layer_prefix(int layer, std::string_view layers = "model.layers.");

}  // namespace ridge
