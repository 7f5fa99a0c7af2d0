// The ops a model may ask a backend for. An op is a value: it names what it reads and writes, and traffic_of() says how many bytes that is.
// T is the number of token rows of the step. Activations are f32. Ops marked (step) also read the current Step.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <variant>

#include "backend/kv_spec.h"
#include "tensor/tensor.h"

namespace ridge {

class Step;

// How a weight is multiplied; chosen once, at load, and the same for any number of tokens.
//   x = f32   products of decoded weights and f32 activations
//   x = i8    activations quantized per k_block to int8 with one f32 scale; exact integer sums per block; blocks added in K order in f32
//   x = i16   a block is the sum of two int8 blocks, the second for what the first misses; first blocks are added over all of K, then second ones to the same sum
struct Arithmetic {
  FormatId x = FormatId::f32;
  int k_block = 32;
  bool operator==(const Arithmetic&) const = default;
};

// A weight as a backend prepared it: [rows = outputs, cols = inputs]. `packed` is in the backend's own layout.
struct Weight {
  FormatId format = FormatId::f32;
  Arithmetic arithmetic;
  int64_t rows = 0, cols = 0;
  float scale = 1.0f;                        // of the whole tensor (nvfp4)
  Tensor packed;
  int64_t bytes = 0;                         // what one pass over it reads
};

enum class NormKind : uint8_t { rms, layer };
enum class ActKind : uint8_t { silu, gelu_tanh, gelu_erf, relu };
enum class RopeStyle : uint8_t { half, interleaved };       // pairs (i, i + n/2) or (2i, 2i + 1)

// out[t] = table[token of t] * scale. by_position: the row is the token's position instead; add: added to what out holds. (step)
struct Embed { Tensor out; const Weight* table; float scale = 1.0f; bool by_position = false, add = false; };

// x += pending_scale * pending (when there is a pending), then out = norm(x) * (weight + weight_offset) + bias. x is written only when there is a pending.
struct AddNorm {
  Tensor out, x, pending;
  float pending_scale = 1.0f;
  Tensor weight, bias;                       // f32 [1, cols]; bias may be empty; weight may be empty (factor 1)
  float eps = 0, weight_offset = 0;
  NormKind kind = NormKind::rms;
};

// In place, each of n_heads slices of a row on its own: rms norm times (weight + weight_offset). Weight [1, head_dim], or [1, n_heads * head_dim].
struct HeadNorm { Tensor x, weight; int n_heads; float eps; float weight_offset = 0; };

// out[i] = x * w[i]^T (+ bias[i]) for up to three weights over one input. out[i]: f32 [T, w[i]->rows].
struct Matmul { std::array<Tensor, 3> out; Tensor x; std::array<const Weight*, 3> w{}; std::array<Tensor, 3> bias{}; };

// angles[t] = cos(position * freq_i) * factor for i < n_freqs, then the sines. Product and functions in f32, as the reference has it. (step)
struct RopeAngles { Tensor angles; int rope; int n_freqs; };

// Rotates q and k by the angles (none when empty: then it only stores) and puts k and v into the pages of the token's position. (step)
struct RopeStore {
  Tensor q, k, v, angles;
  int n_heads, n_kv_heads, head_dim, v_dim;
  int n_rot = 0;                             // leading dimensions of a head that rotate
  RopeStyle style = RopeStyle::half;
  KvRef kv;
};

// Causal attention over pages: softmax in order of position in tiles of 64 at absolute multiples of 64, whatever the page size and the batch. (step)
struct PagedAttention {
  Tensor out, q;                             // [T, n_heads * v_dim], [T, n_heads * head_dim]
  KvRef kv;
  int n_heads, n_kv_heads, head_dim, v_dim;
  float scale;
  int window = 0;                            // a token at p sees positions (p - window, p]; 0: all
  float softcap = 0;                         // s -> cap * tanh(s / cap); 0: none
  Tensor sinks;                              // f32 [1, n_heads]: an extra logit in the denominator; may be empty
};

// out = act(gate) * up, or act(gate) when up is empty. out may be gate.
struct Activate { Tensor out, gate, up; ActKind kind; };

// out[i] = x[row] + pending_scale * pending[row] for the i-th logit row of the step. (step)
struct GatherRows { Tensor out, x, pending; float pending_scale = 1.0f; };

// x = cap * tanh(x * scale / cap); cap 0: x * scale.
struct ScaleCap { Tensor x; float scale = 1.0f, cap = 0; };

using Op = std::variant<Embed, AddNorm, HeadNorm, Matmul, RopeAngles, RopeStore, PagedAttention, Activate, GatherRows, ScaleCap>;

std::string_view name_of(const Op& op);

// Bytes an op must move and the multiply-adds it does, each counted once: the roofline's numerators.
struct Traffic {
  int64_t weight_bytes = 0, kv_bytes = 0, activation_bytes = 0;
  double flops = 0;
  int64_t bytes() const { return weight_bytes + kv_bytes + activation_bytes; }
};
Traffic traffic_of(const Op& op, const Step& step);

}  // namespace ridge
