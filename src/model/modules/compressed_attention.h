// DeepSeek-V4's attention: one key for all heads, which is the value too, seen through a window; and what lies before the window as compressed entries, one for
// every few positions (CompressKv): all of them, or those that an index over compressed keys of its own selects. The rotation that values carry is turned back
// by the query's position, and the output is projected in groups of heads first.
//
//   KV of a layer   handle 0, for the window: keys, then what entries are made of (f32; open blocks only)      handle 1: entries, then the index's entries
#pragma once
#include "model/construction.h"

namespace ridge {

class CompressedAttention : public Module {
 public:
  struct Compressor {
    const Weight *values = nullptr, *gates = nullptr;
    Tensor bias, norm;
    int head_dim = 0;
  };
  struct Index {
    const Weight *q = nullptr, *weights = nullptr;
    Compressor keys;
    int n_heads = 0, top_k = 0;
    bool with_hindsight = false;             // IndexTopK
  };
  struct Parts {
    int n_heads, head_dim, n_rot, window;
    const Weight *q_a, *q_b, *kv, *o;
    Tensor q_norm, kv_norm, sinks;
    std::vector<const Weight*> o_groups;     // [o_rank, n_heads * head_dim / groups] each
    float eps;
    int rope;
    int every = 0;                           // positions of an entry; 0: nothing but the window is seen
    bool overlap = false;
    Compressor entries{};
    Index index{};                           // no weights: all entries are seen
    int window_kv = 0, entries_kv = 0;
  };
  explicit CompressedAttention(Parts parts) : p_(std::move(parts)) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;

 private:
  void compress(Pass& pass, const Compressor& c, int buffer, Tensor x, int inputs_plane, int entries_plane) const;
  Parts p_;
};

struct CompressedAttentionOptions {
  int head_dim = 0, n_rot = 0, q_rank = 0, o_groups = 0, o_rank = 0, window = 0, rope = 0;
  int every = 0;                             // 0: a layer with nothing but its window
  bool indexed = false;                      // entries overlap, and an index selects them
  int index_heads = 0, index_dim = 0, index_top_k = 0;
};

// Tensors wq_a, q_norm, wq_b; wkv, norm; attn_sink; wo_a, wo_b; compressor.{wkv, wgate, ape, norm}; indexer.{wq_b, weights_proj, compressor.*}.
std::unique_ptr<Module> make_compressed_attention(Construction& c, const std::string& prefix, const Shape& shape, const CompressedAttentionOptions& options);

}  // namespace ridge
