// The ops a model may ask a backend for. An op is a value: it names what it reads and writes, and traffic_of() says how many bytes that is.
// T is the number of token rows of the step. Activations are f32. Ops marked (step) also read the current Step.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "backend/kv_spec.h"
#include "tensor/tensor.h"

namespace ridge {

class Step;

// How a weight is multiplied; chosen once, at load, and the same for any number of tokens.
//   x = f32   products of decoded weights and f32 activations
//   x = i8    activations quantized per k_block to int8 with one f32 scale; exact integer sums per block; blocks added in K order in f32
//             k_block 64: so are the weights, where a format's own blocks are smaller (on the CPU q4_0 alone, cpu/q4_pairs.h; a weight that this does not suit gets 32)
//   x = i16   a block is the sum of two int8 blocks, the second for what the first misses; first blocks are added over all of K, then second ones to the same sum
//   x = bf16  activations rounded to bf16, exact products with codes; a block's sum is scaled where the format has scales for k_block inputs (cuda)
struct Arithmetic {
  FormatId x = FormatId::f32;
  int k_block = 32;                          // 0 asks for what the machine does fastest; the prepared Weight says what it got
  bool operator==(const Arithmetic&) const = default;
};

// A weight as a backend prepared it: [rows = outputs, cols = inputs]. `packed` is in the backend's own layout.
struct Weight {
  FormatId format = FormatId::f32;
  Arithmetic arithmetic;
  int64_t rows = 0, cols = 0;
  float scale = 1.0f;                        // of the whole tensor (nvfp4)
  Tensor row_scales{};                       // f32 [1, rows]: one more factor for each output (fp8); empty: none
  Tensor packed;
  int64_t bytes = 0;                         // what one pass over it reads
  std::string name{};                        // of the tensor it was made of, for messages
};

enum class NormKind : uint8_t { rms, layer, l2 };            // l2: by the root of the sum of squares plus eps
// relu2 is the square of relu. gpt_oss: a(g) * (up + 1) with a(g) = g * sigmoid(1.702 g).
enum class ActKind : uint8_t { silu, gelu_tanh, gelu_erf, relu, relu2, sigmoid, softplus, gpt_oss, identity };
enum class GateKind : uint8_t { softmax, sigmoid, sqrt_softplus };
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

// In place, each of n_heads slices of a row on its own: norm times (weight + weight_offset), plus bias. Weight and bias [1, head_dim] or [1, n_heads * head_dim];
// both may be empty.
struct HeadNorm { Tensor x, weight; int n_heads; float eps; float weight_offset = 0; Tensor bias{}; NormKind kind = NormKind::rms; };

// x += scale * y.
struct AddScaled { Tensor x, y; float scale = 1.0f; };

// x[t] *= 1 + factor * log(1 + floor((position + offset) / floor_scale)): attention temperature that grows with the position. (step)
struct ScaleByPosition { Tensor x; float factor = 0; int floor_scale = 1, offset = 0; };

// out[i] = x * w[i]^T (+ bias[i]) for up to three weights over one input. out[i]: f32 [T, w[i]->rows].
struct Matmul { std::array<Tensor, 3> out; Tensor x; std::array<const Weight*, 3> w{}; std::array<Tensor, 3> bias{}; };

// out[:, h] = x[:, h] * w[h]^T for each of n_heads slices of a row, with a weight of its own (latent attention: heads into the latent space and out of it).
// What a slice of x has beyond the weight's inputs is copied behind its outputs (the part of a query that carries the position).
struct HeadMatmul { Tensor out, x; const Weight* const* w; int n_heads; };

// angles[t] = cos(position * freq_i) * factor for i < n_freqs, then the sines. Product and functions in f32, as the reference has it. (step)
struct RopeAngles { Tensor angles; int rope; int n_freqs; };

// Rotates q and k by the angles (none when empty: then it only stores) and puts k and v into the pages of the token's position. An empty k: nothing is stored
// (layers that share another's KV); an empty v: keys alone (latent attention). (step)
struct RopeStore {
  Tensor q, k, v, angles;
  int n_heads, n_kv_heads, head_dim, v_dim;
  int n_rot = 0;                             // dimensions of a head that rotate, from rot_first on
  int rot_first = 0;
  RopeStyle style = RopeStyle::half;
  KvRef kv;
  bool back = false;                         // by the negative angles
};

// Lightning index: the top_k = selected.cols entries of plane 0 of kv with the largest sums over heads h of weights[t, h] * relu(q[t, h] . key), ascending, then
// -1; the earlier one wins a tie. A token at p chooses among the entries that are complete: (p + 1) / every. (step)
// with_hindsight: ties at the edge fall as they do where a whole sequence is sorted at once, entries to come included (backend/top_k.h); earlier tokens then choose
// again whenever the sequence grows.
struct IndexTopK { Tensor selected, q, weights; KvRef kv; int n_heads, head_dim; bool with_hindsight = false; };

// Compressed KV: `every` positions become one entry. Keeps x[t] = [values | gates] in plane 0 of `inputs`; where t ends a block, the block's entry is, for each
// dimension, the sum of values weighted by softmax over the block's positions of (gates + bias), then normed, rotated (the last n_rot dimensions) as the block's
// first position, and put into plane 0 of `entries`. overlap: values and gates are twice as wide, and an entry is made of the second halves of its own block and
// the first halves of the one before. (step)
struct CompressKv {
  Tensor x, bias, norm;                      // f32 [T, 2 * width], [every, width], [1, head_dim]; width is head_dim, or twice that (overlap)
  KvRef inputs, entries;
  int head_dim, rope, n_rot;
  float eps;
  RopeStyle style = RopeStyle::interleaved;
  bool overlap = false;
};

// Causal attention over pages: softmax in order of position in tiles at absolute multiples of their length (CPU: 64, in bf16 128), whatever the page size and the
// batch. (step)
struct PagedAttention {
  Tensor out, q;                             // [T, n_heads * v_dim], [T, n_heads * head_dim]
  KvRef kv;
  int n_heads, n_kv_heads, head_dim, v_dim;
  float scale;
  int window = 0;                            // a token at p sees positions (p - window, p]; 0: all
  float softcap = 0;                         // s -> cap * tanh(s / cap); 0: none
  Tensor sinks{};                            // f32 [1, n_heads]: an extra logit in the denominator; may be empty
  int chunk = 0;                             // a token at p sees positions [p - p % chunk, p]; 0: all
  bool value_in_key = false;                 // values are the first v_dim numbers of the keys (latent attention); plane 1 is not there
  bool may_use_bf16 = false;                 // queries, keys, values and weights may be rounded to bf16 where that is faster: what follows rounds more
  Tensor selected{};                         // i32 [T, n]: the positions (where there are entries: the entries) a token sees, ascending, then -1; empty: all
  KvRef entries{};                           // plane 0: compressed keys that a token at p sees before its positions, (p + 1) / every of them; no base: none
};

// out = act(gate) * up, or act(gate) when up is empty. out may be gate or up. A gate of fewer columns than out: each value serves out.cols / gate.cols neighbours.
// limit > 0: gate is cut at +limit and up at +-limit first.
struct Activate { Tensor out, gate, up; ActKind kind; float limit = 0; };

// Mixture of experts. A step's T * top_k pairs (token, choice) are grouped by expert, so that each touched expert is read once:
//   plan   i32 [1, n_experts + 1 + 2 * T * top_k]: first grouped row of each expert and the number of all; pair (t * top_k + j) of each grouped row, by token
//          inside an expert; grouped row of each pair, -1 for an expert without weights
// A choice of n_experts or more is an expert that does nothing: it returns its input (LongCat).

// Scores s = gate(logits); the top_k experts by s + bias (best first; the lower number wins a tie); weights from s. (step, for hash)
struct MoeRoute {
  Tensor chosen, weights, plan;              // i32 [T, top_k], f32 [T, top_k]
  Tensor logits, bias;                       // f32 [T, n_experts + n_idle]; bias [1, same], for the choice alone; may be empty
  Tensor hash{};                             // i32 [n_vocab, top_k]: the experts of a token id; empty: the best ones
  int n_experts = 0, n_idle = 0, top_k = 0;
  GateKind gate = GateKind::softmax;
  bool gate_chosen = false;                  // experts are chosen by their logits, and the gate is applied to the chosen ones alone
  int n_groups = 1, top_groups = 1;          // experts are chosen from the best top_groups of n_groups neighbourhoods
  int group_best = 1;                        // a group's score is the sum of its best 1 or 2 scores
  bool renormalize = false;                  // weights divided by their sum + norm_eps, or by norm_least where the sum is below it
  float norm_eps = 0, norm_least = 0;
  float scale = 1.0f;
};

// out[r] = x[...] * w[e]^T (+ bias[e]) for the grouped rows r of every expert e. x: by token (gather), or grouped already. Up to two weights over one input.
struct MoeMatmul {
  std::array<Tensor, 2> out;                 // f32 [T * top_k, w->rows], grouped
  Tensor x, plan;
  std::array<const Weight* const*, 2> w{};   // [n_experts] each
  std::array<Tensor, 2> bias{};              // f32 [n_experts, w->rows]
  int n_experts, top_k;
  bool gather;
  Tensor weights{};                          // gather: the row is scaled by its pair's weight on the way in (Llama 4); may be empty
};

// out[t] = sum over j of weights[t, j] * y[grouped row of (t, j)], in order of j; an expert that does nothing contributes x. No weights: factors of 1.
struct MoeCombine { Tensor out, y, plan, chosen, weights, x; int n_experts, top_k; };

// Hyper-connections: a row of x holds n streams, and a row of weights n factors of what goes into a part, then n of what comes out of it, then the n x n factors
// by which the streams mix; all are made here from a projection of the streams, z = scale * weights + base (a scale for each of the three):
//   in = sigmoid(z) + eps    out = 2 sigmoid(z)    mix = softmax of a row of z + eps, then `iterations` times its columns, and between them its rows, divided by sums + eps
// out[t] = sum of in[i] * stream i. weights.cols == n: there is nothing but `in` (the end of the model).
struct HyperEnter { Tensor out, x, weights, scale, base; int n, iterations; float eps; };
// stream k of x = out[k] * y + sum over j of mix[j, k] * stream j.
struct HyperLeave { Tensor x, y, weights; int n; };

// Depthwise causal convolution along a sequence: out[t, c] = sum over i of weight[i, c] * x[t - (n_taps - 1) + i, c] (+ bias[c]), then silu. Positions before the
// first count as 0; those of earlier steps are in the pages (plane 0: an f32 entry of x per position). out is not x. (step)
struct ShortConv { Tensor out, x, weight, bias; bool silu; KvRef kv; };          // weight f32 [n_taps, channels]

// What a recurrent layer writes into its state under the key k: the value, dt times the value (Mamba-2), or, by the delta rule, beta times what the value is
// more than the decayed state returns for k.
enum class ScanWrite : uint8_t { plain, stepped, delta };

// Linear attention with a state S [dk, dv] per head: S_t = decay_t S_(t-1) + k_t u_t^T, out_t = q_scale * S_t^T q_t + skip * v_t, u_t as `write` says.
//   log decay_t = rate * dt_t, dt_t = softplus(gate_t) cut to [dt_least, dt_most]: a number per head, or per dimension of k; without a gate dt is 1
//   beta_t = beta_scale * sigmoid(.)
// Pages of 64 positions hold the state before their first one (plane 0, every = 64) and per position k, u and the sum of the log decays since the page began
// (planes 1, 2, 3), all f32. The first token of a page makes its state from the page before, where that is still there. (step)
struct LinearScan {
  Tensor out, q, k, v;                       // [T, n_heads * dv]; q and k: [T, n_k_heads * dk], neighbouring heads share; [T, n_heads * dv]
  Tensor gate, rate;                         // [T, n_heads] or [T, n_heads * dk] or empty; [1, n_heads]
  Tensor beta, skip;                         // delta: [T, n_heads]; [1, n_heads], may be empty
  int n_heads, n_k_heads, dk, dv;
  ScanWrite write;
  float q_scale = 1.0f, beta_scale = 1.0f, dt_least = 0, dt_most = __builtin_inff();
  KvRef kv;
};

// Mamba-1: h_t[n, c] = exp(dt_t[c] * rate[n, c]) * h_(t-1)[n, c] + dt_t[c] * x_t[c] * b_t[n], out_t[c] = sum over n of c_t[n] * h_t[n, c] + skip[c] * x_t[c],
// dt = softplus(gate). Pages of 64 positions hold the state before their first one (plane 0, every = 64); room for the newest state and its position
// (plane 1, every = 64), so that the next token need not replay; and per position x and dt (plane 2) and b (plane 3), all f32. (step)
struct SelectiveScan {
  Tensor out, x, gate, b, c;                 // [T, channels] three times, [T, n_state] twice
  Tensor rate, skip;                         // [n_state, channels], [1, channels]
  KvRef kv;
};

// out[i] = x[row] + pending_scale * pending[row] for the i-th logit row of the step. (step)
struct GatherRows { Tensor out, x, pending; float pending_scale = 1.0f; };

// x = cap * tanh(x * scale / cap); cap 0: x * scale.
struct ScaleCap { Tensor x; float scale = 1.0f, cap = 0; };

using Op = std::variant<Embed, AddNorm, HeadNorm, AddScaled, ScaleByPosition, Matmul, HeadMatmul, RopeAngles, RopeStore, PagedAttention, IndexTopK,
                        CompressKv, Activate, MoeRoute, MoeMatmul, MoeCombine, ShortConv, LinearScan, SelectiveScan, HyperEnter, HyperLeave, GatherRows, ScaleCap>;

std::string_view name_of(const Op& op);

// Bytes an op must move and the multiply-adds it does, each counted once: the roofline's numerators.
struct Traffic {
  int64_t weight_bytes = 0, kv_bytes = 0, activation_bytes = 0;
  double flops = 0;
  int64_t bytes() const { return weight_bytes + kv_bytes + activation_bytes; }
};
Traffic traffic_of(const Op& op, const Step& step);

}  // namespace ridge
