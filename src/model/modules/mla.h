// Multi-head latent attention in its absorbed form. What is kept of a token is one vector for all heads: a latent of kv_rank numbers, then n_rot numbers that carry
// the position. Keys and values of a head are linear in the latent, k = K c and v = V c, so a head's query goes into the latent space once (q K) and what it saw
// comes out of it once (V o); in between the heads are those of a multi-query attention whose values are the first kv_rank numbers of its keys.
//
//   scale * [q_nope K, rope(q_rot)] . [c, rope(k_rot)]
//
// With an index (DeepSeek's sparse attention) a token sees only the top_k positions that a small attention of its own scores best.
#pragma once
#include "model/construction.h"

namespace ridge {

class Mla : public Module {
 public:
  // Index heads: score of a position = sum over heads of weight * relu(q . k). Their keys are plane 1 of the layer's KV.
  struct Index {
    const Weight *q = nullptr, *k = nullptr, *weights = nullptr;        // q from the query's low rank, the others from the input
    Tensor k_norm, k_norm_bias;
    int n_heads = 0, head_dim = 0, top_k = 0;
    bool with_hindsight = false;                                        // IndexTopK
    RopeStyle style = RopeStyle::half;                                  // of the first n_rot dimensions
  };
  struct Parts {
    int n_heads, kv_rank, n_nope, n_rot, v_dim;
    const Weight *q_a = nullptr, *q_b;                                  // no q_a: q_b is the whole projection
    const Weight *kv_a, *o;
    Tensor q_a_bias{}, kv_a_bias{}, o_bias{}, q_a_norm{}, kv_a_norm;    // biases may be empty
    std::vector<const Weight*> k_heads, v_heads;                        // [kv_rank, n_nope] and [v_dim, kv_rank] of each head
    float norm_eps;
    int rope = -1;                                                      // -1: the position is not in the keys
    RopeStyle style = RopeStyle::interleaved;
    int kv = 0;
    float scale = 1;
    bool sparse = false;                                                // only the selected positions are seen
    Index index{};                                                      // sparse, and no index: what the last layer with an index has selected
  };
  explicit Mla(Parts parts) : p_(std::move(parts)) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;

 private:
  void select(Pass& pass, Tensor x, Tensor q_low) const;
  Parts p_;
};

struct MlaShape {
  int q_rank = 0;                            // 0: queries are projected at once
  int kv_rank = 0, n_nope = 0, n_rot = 0, v_dim = 0;
};
MlaShape read_mla_shape(const Config& config);                          // q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim

struct MlaOptions {
  int rope = -1;                             // of add_mla_rope
  RopeStyle style = RopeStyle::interleaved;
  float scale = 0;                           // 0: (n_nope + n_rot) ^ -0.5
  float q_scale = 1, latent_scale = 1;       // on the normed low ranks (LongCat)
  float norm_eps = 1e-6f;                    // of the low ranks' norms, which do not follow rms_norm_eps
  bool bias = false;                         // of the projections of the input and the output
  bool sparse = false, index = false;        // index: this layer has one, with tensors under "indexer."
  int index_heads = 0, index_dim = 0, index_top_k = 0;
  RopeStyle index_style = RopeStyle::half;
};

// A rope over n_rot dimensions, and the factor that YaRN puts on the scores when mscale_all_dim is given.
int add_mla_rope(Construction& c, const Shape& shape, const MlaShape& mla, double default_theta = 10000.0);
float mla_scale(const Config& config, const MlaShape& mla);

// Tensors q_proj or q_a_proj, q_a_layernorm, q_b_proj; kv_a_proj_with_mqa, kv_a_layernorm, kv_b_proj; o_proj.
std::unique_ptr<Module> make_mla(Construction& c, const std::string& prefix, const Shape& shape, const MlaShape& mla, const MlaOptions& options);

}  // namespace ridge
