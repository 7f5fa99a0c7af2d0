// Rotary angles once per step, and the rotation fused with the norms of heads before it and with putting K and V into their pages. Pages hold
// [kv_head][position][dim] in the plane's format. A warp takes one head.
//
// Many tokens on sm_90: blocks stay, three a multiprocessor, and the copy engine brings their next tokens into shared memory while they are at one (loads by threads had 1.7
// of 4.3 TB/s on their way). The last token comes first: it was written last and may still lie in the second-level cache. Where attention rounds queries to 16 bits anyway
// and nobody else reads them, they leave rounded.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/flash_fp8.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/rotate.h"

namespace ridge::cuda {
namespace {

// Made of the step alone, so beside the kernel before it, which it waits for at its end: whoever waits for this one waits for all.
__global__ void angles_kernel(RopeAngles op, StepView step) {
  start_dependents();
  const int t = blockIdx.x;
  const StepSeq& seq = step.seqs[step.seq_of[t]];
  const float* freqs = step.rope + (int64_t{seq.rope_row} * step.n_ropes + op.rope) * (step.n_freqs + 1);
  const float factor = freqs[step.n_freqs];
  float* out = reinterpret_cast<float*>(op.angles.data + t * op.angles.stride);
  for (int i = threadIdx.x; i < op.n_freqs; i += blockDim.x) {
    const float angle = float(step.positions[t]) * freqs[i];
    out[i] = cosf(angle) * factor;
    out[op.n_freqs + i] = sinf(angle) * factor;
  }
  await_predecessors();
}

__device__ void put(std::byte* plane, FormatId format, int64_t index, float v) {
  if (format == FormatId::f32) reinterpret_cast<float*>(plane)[index] = v;
  else if (format == FormatId::f16) reinterpret_cast<__half*>(plane)[index] = __float2half_rn(v);
  else reinterpret_cast<__nv_bfloat16*>(plane)[index] = __float2bfloat16_rn(v);
}

// A head of a position in fp8, whose numbers a warp holds: `place` is kv_head * page_size + position in the page.
template <int kOwn>
__device__ void put_fp8(const KvRef& kv, int plane, int32_t page, int64_t place, int dim, const float (&value)[kOwn]) {
  const KvFp8Scale scale = fp8_scale_of(value);
  const int lane = threadIdx.x % 32;
  auto* const codes = reinterpret_cast<uint8_t*>(kv.plane(plane, page)) + place * dim;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (lane + 32 * i < dim) codes[lane + 32 * i] = fp8_code(value[i], scale);
  if (lane == 0) reinterpret_cast<float*>(kv.scales(plane, page))[place] = scale.scale;
}

// Element d of a head after rotation.
__device__ float rotated(const float* x, const float* angles, int d, int n_rot, RopeStyle style) {
  if (!angles || d >= n_rot) return x[d];
  const Turn turn = turn_of(d, n_rot, style);
  return turned(x[d], x[turn.partner], angles[turn.angle], angles[n_rot / 2 + turn.angle], turn.first);
}

constexpr int kHeadsPerBlock = 4;
constexpr int kManyFrom = 65;                                               // tokens; below, more warps with less each are faster

// kOwn: numbers of a head a lane may hold. Dynamic shared memory: a head [head_dim] f32 a warp. What can be asked for at once is: a load that
// waits for another costs 0.7 us. kFp8: so are K and V stored.
template <int kOwn, bool kFp8>
__global__ void __launch_bounds__(kHeadsPerBlock * 32) rope_store_kernel(const __grid_constant__ RopeStore op, const __grid_constant__ NormOfHeads q_norm, const __grid_constant__ NormOfHeads k_norm,
                                                                       const __grid_constant__ StepView step, Mark mark) {
  RIDGE_DYNAMIC_SHARED(memory, 4);
  float* const shared = reinterpret_cast<float*>(memory);
  start_dependents();
  const int t = blockIdx.x, lane = threadIdx.x % 32;
  const int unit = blockIdx.y * kHeadsPerBlock + threadIdx.x / 32;          // q heads, then k heads, then v heads
  if (unit >= op.n_heads + 2 * op.n_kv_heads) return;
  const bool is_q = unit < op.n_heads, is_k = !is_q && unit < op.n_heads + op.n_kv_heads;
  const int h = is_q ? unit : is_k ? unit - op.n_heads : unit - op.n_heads - op.n_kv_heads;
  const Tensor& from = is_q ? op.q : is_k ? op.k : op.v;
  const int dim = is_q || is_k ? op.head_dim : op.v_dim;
  float* row = reinterpret_cast<float*>(from.data + t * from.stride) + h * dim;
  float* head = shared + threadIdx.x / 32 * max(op.head_dim, op.v_dim);
  const NormOfHeads& norm = is_q ? q_norm : k_norm;
  const bool normed = norm.weight && (is_q || is_k);
  float weight[kOwn], value[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) weight[i] = normed && lane + 32 * i < dim ? norm.weight[h * norm.head_stride + lane + 32 * i] : 0.0f;
  int64_t place = 0;
  int32_t page = 0;
  if (!is_q) {                                                              // the step lies there since before its first kernel
    const int position = step.positions[t];
    page = step.pages[step.seqs[step.seq_of[t]].first_page[op.kv.group] + position / op.kv.page_size];
    place = (int64_t{h} * op.kv.page_size + position % op.kv.page_size) * dim;
  }
  leave(mark);
  await_predecessors();
#pragma unroll
  for (int i = 0; i < kOwn; ++i) value[i] = lane + 32 * i < dim ? __ldcg(row + lane + 32 * i) : 0.0f;
  if (normed) norm_head(value, weight, dim, norm);
  const float* angles = op.angles.data ? reinterpret_cast<const float*>(op.angles.data + t * op.angles.stride) : nullptr;
  if (angles && (is_q || is_k)) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (lane + 32 * i < dim) head[lane + 32 * i] = value[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (lane + 32 * i < dim) value[i] = rotated(head, angles, lane + 32 * i, op.n_rot, op.style);
  }
  if constexpr (kFp8) {
    if (!is_q) return put_fp8(op.kv, is_k ? 0 : 1, page, place / dim, dim, value);
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (lane + 32 * i >= dim) continue;
    if (is_q) row[lane + 32 * i] = value[i];
    else put(op.kv.plane(is_k ? 0 : 1, page), op.kv.planes[is_k ? 0 : 1].format, place + lane + 32 * i, value[i]);
  }
}

// The same for many tokens and heads that rotate whole, by halves: an element's partner lies in the same lane, and a warp takes several heads of a token, whose angles are
// the same; all their numbers are asked for at once.
constexpr int kHeadsAtOnce = 4;

template <int kOwn, bool kFp8>
__global__ void __launch_bounds__(kHeadsPerBlock * 32) rope_store_many_kernel(const __grid_constant__ RopeStore op, const __grid_constant__ NormOfHeads q_norm, const __grid_constant__ NormOfHeads k_norm,
                                                                            const __grid_constant__ StepView step, Mark mark) {
  constexpr int kDim = 32 * kOwn, kHalf = kOwn / 2;
  start_dependents();
  const int n_q = (op.n_heads + kHeadsAtOnce - 1) / kHeadsAtOnce, n_kv = (op.n_kv_heads + kHeadsAtOnce - 1) / kHeadsAtOnce;
  const int lane = threadIdx.x % 32, t = blockIdx.x, nth = blockIdx.y * kHeadsPerBlock + threadIdx.x / 32;
  if (nth >= n_q + 2 * n_kv) return;
  const bool is_q = nth < n_q, is_k = !is_q && nth < n_q + n_kv;
  const int first = (is_q ? nth : is_k ? nth - n_q : nth - n_q - n_kv) * kHeadsAtOnce, n_heads = is_q ? op.n_heads : op.n_kv_heads;
  const Tensor& from = is_q ? op.q : is_k ? op.k : op.v;
  float* const row = reinterpret_cast<float*>(from.data + t * from.stride) + first * kDim + lane;
  const NormOfHeads& norm = is_q ? q_norm : k_norm;
  const bool turns = is_q || is_k, normed = norm.weight && turns;
  int64_t place = 0;
  int32_t page = 0;
  if (!is_q) {
    const int position = step.positions[t];
    page = step.pages[step.seqs[step.seq_of[t]].first_page[op.kv.group] + position / op.kv.page_size];
    place = (int64_t{first} * op.kv.page_size + position % op.kv.page_size) * kDim + lane;
  }
  leave(mark);
  await_predecessors();
  float value[kHeadsAtOnce][kOwn], c[kHalf], s[kHalf];
#pragma unroll
  for (int h = 0; h < kHeadsAtOnce; ++h)
#pragma unroll
    for (int i = 0; i < kOwn; ++i) value[h][i] = first + h < n_heads ? __ldcg(row + h * kDim + 32 * i) : 0.0f;
  const float* angles = reinterpret_cast<const float*>(op.angles.data + t * op.angles.stride) + lane;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) c[i] = turns ? angles[32 * i] : 0.0f, s[i] = turns ? angles[kDim / 2 + 32 * i] : 0.0f;
#pragma unroll
  for (int h = 0; h < kHeadsAtOnce; ++h) {
    if (first + h >= n_heads) break;
    float(&v)[kOwn] = value[h];
    if (normed) {
      float weight[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) weight[i] = norm.weight[(first + h) * norm.head_stride + lane + 32 * i];
      norm_head(v, weight, kDim, norm);
    }
    if (turns) {
#pragma unroll
      for (int i = 0; i < kHalf; ++i) {
        const float a = v[i], b = v[i + kHalf];
        v[i] = turned(a, b, c[i], s[i], true);
        v[i + kHalf] = turned(b, a, c[i], s[i], false);
      }
    }
    if (is_q) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) row[h * kDim + 32 * i] = v[i];
    } else if constexpr (kFp8) {
      put_fp8(op.kv, is_k ? 0 : 1, page, (place - lane) / kDim + int64_t{h} * op.kv.page_size, kDim, v);
    } else {
      std::byte* const plane = op.kv.plane(is_k ? 0 : 1, page);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) put(plane, op.kv.planes[is_k ? 0 : 1].format, place + int64_t{h} * op.kv.page_size * kDim + 32 * i, v[i]);
    }
  }
}

constexpr int kStayingBlocks = 3, kStayingWarps = 8, kStayingStages = 4, kStayingBytes = 72 << 10;        // a multiprocessor; of a block

// A head's numbers of 16 bits, from lanes that hold every 32nd: neighbours trade, so that each writes pairs.
template <class T, int kOwn>
__device__ void put_pairs(std::byte* to, const float (&v)[kOwn]) {
  const int lane = threadIdx.x % 32, odd = lane % 2;
#pragma unroll
  for (int i = 0; i < kOwn; i += 2) {
    const float received = __shfl_xor_sync(0xffffffffu, odd ? v[i] : v[i + 1], 1);
    reinterpret_cast<uint32_t*>(to)[(lane + 32 * (i + odd)) / 2] = odd ? pack<T>(received, v[i + 1]) : pack<T>(v[i], received);
  }
}

// The same for many tokens of such heads, T: how K and V are stored. Dynamic shared memory: [stage][heads of q, of k, of v, then the angles], then where each of the
// block's tokens goes.
template <int kOwn, class T>
__global__ void __launch_bounds__(kStayingWarps * 32, kStayingBlocks)
    rope_store_staying_kernel(const __grid_constant__ RopeStore op, const __grid_constant__ NormOfHeads q_norm, const __grid_constant__ NormOfHeads k_norm, const __grid_constant__ StepView step, Mark mark,
                              int n_stages, bool rounds_queries) {
#if defined(RIDGE_SM90)
  constexpr int kDim = 32 * kOwn, kHalf = kOwn / 2;
  RIDGE_DYNAMIC_SHARED(ring, 16);
  __shared__ Barrier full[kStayingStages];
  start_dependents();
  const int lane = threadIdx.x % 32, n_heads = op.n_heads + 2 * op.n_kv_heads, stage_bytes = (n_heads + 1) * kDim * 4, stride = int(gridDim.x);
  int2* const places = reinterpret_cast<int2*>(ring + n_stages * stage_bytes);          // page, position in it
  const auto ask = [&](int stage, int t) {
    std::byte* to = ring + stage * stage_bytes;
    arrive_expecting(&full[stage], stage_bytes);
    const auto bring = [&](const Tensor& from, int n) {
      copy_bulk(to, from.data + t * from.stride, n * kDim * 4, &full[stage]);
      to += n * kDim * 4;
    };
    bring(op.q, op.n_heads);
    if (op.n_kv_heads > 0) bring(op.k, op.n_kv_heads), bring(op.v, op.n_kv_heads);
    bring(op.angles, 1);
  };
  int t = int(op.q.rows) - 1 - int(blockIdx.x), stage = 0;
  uint32_t phase = 0;
  if (op.n_kv_heads > 0)                                                     // the step lies there since before its first kernel
    for (int i = int(threadIdx.x); t - i * stride >= 0; i += kStayingWarps * 32) {
      const int token = t - i * stride, position = step.positions[token];
      places[i] = {step.pages[step.seqs[step.seq_of[token]].first_page[op.kv.group] + position / op.kv.page_size], position % op.kv.page_size};
    }
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStayingStages; ++s) init_barrier(&full[s], 1);
    publish_barriers();
  }
  leave(mark);
  __syncthreads();
  await_predecessors();
  if (threadIdx.x == 0)
    for (int s = 0; s < n_stages && t - s * stride >= 0; ++s) ask(s, t - s * stride);
#pragma unroll 1
  for (int i = 0; t >= 0; ++i, t -= stride) {
    await(&full[stage], phase);
    const float* const heads = reinterpret_cast<const float*>(ring + stage * stage_bytes) + lane;
    float c[kHalf], s[kHalf];
#pragma unroll
    for (int j = 0; j < kHalf; ++j) c[j] = heads[n_heads * kDim + 32 * j], s[j] = heads[n_heads * kDim + kDim / 2 + 32 * j];
#pragma unroll 1
    for (int nth = int(threadIdx.x) / 32; nth < n_heads; nth += kStayingWarps) {
      const bool is_q = nth < op.n_heads, is_k = !is_q && nth < op.n_heads + op.n_kv_heads;
      const int h = is_q ? nth : is_k ? nth - op.n_heads : nth - op.n_heads - op.n_kv_heads;
      float v[kOwn];
#pragma unroll
      for (int j = 0; j < kOwn; ++j) v[j] = heads[nth * kDim + 32 * j];
      if (is_q || is_k) {
        const NormOfHeads& norm = is_q ? q_norm : k_norm;
        if (norm.weight) {
          float weight[kOwn];
#pragma unroll
          for (int j = 0; j < kOwn; ++j) weight[j] = norm.weight[h * norm.head_stride + lane + 32 * j];
          norm_head(v, weight, kDim, norm);
        }
#pragma unroll
        for (int j = 0; j < kHalf; ++j) {
          const float a = v[j], b = v[j + kHalf];
          v[j] = turned(a, b, c[j], s[j], true);
          v[j + kHalf] = turned(b, a, c[j], s[j], false);
        }
      }
      constexpr bool kPairs = !kIsFp8<T> && sizeof(T) == 2;
      if (is_q) {
        std::byte* const row = op.q.data + t * op.q.stride;
        if constexpr (kPairs) {
          if (rounds_queries) {
            put_pairs<T>(row + h * kDim * 2, v);
            continue;
          }
        }
#pragma unroll
        for (int j = 0; j < kOwn; ++j) reinterpret_cast<float*>(row)[h * kDim + lane + 32 * j] = v[j];
        continue;
      }
      const int plane = is_k ? 0 : 1;
      const int32_t page = places[i].x;
      const int64_t place = int64_t{h} * op.kv.page_size + places[i].y;
      if constexpr (kIsFp8<T>) put_fp8(op.kv, plane, page, place, kDim, v);
      else if constexpr (kPairs) put_pairs<T>(op.kv.plane(plane, page) + place * (kDim * 2), v);
      else
#pragma unroll
        for (int j = 0; j < kOwn; ++j) reinterpret_cast<float*>(op.kv.plane(plane, page))[place * kDim + lane + 32 * j] = v[j];
    }
    __syncthreads();                                                         // all have read the token
    if (threadIdx.x == 0 && t - n_stages * stride >= 0) ask(stage, t - n_stages * stride);
    if (++stage == n_stages) stage = 0, phase ^= 1;
  }
#endif
}

// Heads that rotate whole, by halves.
bool turns_whole(const RopeStore& op) {
  return op.angles.data && op.style == RopeStyle::half && op.n_rot == op.head_dim && op.v_dim == op.head_dim && (op.head_dim == 64 || op.head_dim == 128);
}

int64_t staying_stage_bytes(const RopeStore& op) { return (op.n_heads + 2 * op.n_kv_heads + 1) * int64_t{op.head_dim} * 4; }

bool stays(const RopeStore& op, const Launch& l) {
  const auto aligned = [](const Tensor& t) { return t.stride % 16 == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0; };
  return kHasSm90a && l.compute_capability == 90 && op.q.rows >= kManyFrom && turns_whole(op) && staying_stage_bytes(op) <= kStayingBytes && op.kv.planes[0].format == op.kv.planes[1].format &&
         aligned(op.q) && aligned(op.k) && aligned(op.v) && aligned(op.angles);
}

template <int kOwn>
void launch_staying(const RopeStore& op, const HeadNorm* q_norm, const HeadNorm* k_norm, bool rounds_queries, const Launch& l) {
  const int n_blocks = std::min(int(op.q.rows), kStayingBlocks * l.n_sms), n_turns = int(op.q.rows + n_blocks - 1) / n_blocks;
  const int64_t stage_bytes = staying_stage_bytes(op), n_stages = std::min<int64_t>(kStayingStages, kStayingBytes / stage_bytes), bytes = n_stages * stage_bytes + n_turns * int64_t{sizeof(int2)};
  const auto launch = [&](auto kernel) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
    launch_kernel(kernel, n_blocks, kStayingWarps * 32, int(bytes), l.stream, op, norm_of_heads(q_norm, op.head_dim), norm_of_heads(k_norm, op.head_dim), l.step, l.mark, int(n_stages),
                  rounds_queries);
  };
  switch (op.kv.planes[0].format) {
    case FormatId::f32: launch(rope_store_staying_kernel<kOwn, float>); break;
    case FormatId::f16: launch(rope_store_staying_kernel<kOwn, __half>); break;
    case FormatId::fp8_e4m3: launch(rope_store_staying_kernel<kOwn, E4m3>); break;
    default: launch(rope_store_staying_kernel<kOwn, __nv_bfloat16>); break;
  }
}

template <bool kFp8>
void launch_rope_store(const RopeStore& op, const HeadNorm* q_norm, const HeadNorm* k_norm, const Launch& l) {
  if (op.q.rows >= kManyFrom && turns_whole(op)) {
    const int n_warps = (op.n_heads + kHeadsAtOnce - 1) / kHeadsAtOnce + (op.n_kv_heads + kHeadsAtOnce - 1) / kHeadsAtOnce * 2;
    launch_kernel(op.head_dim == 64 ? rope_store_many_kernel<2, kFp8> : rope_store_many_kernel<4, kFp8>, dim3(op.q.rows, (n_warps + kHeadsPerBlock - 1) / kHeadsPerBlock), kHeadsPerBlock * 32, 0, l.stream, op,
                  norm_of_heads(q_norm, op.head_dim), norm_of_heads(k_norm, op.head_dim), l.step, l.mark);
    return;
  }
  const int n_units = op.n_heads + 2 * op.n_kv_heads, widest = op.head_dim > op.v_dim ? op.head_dim : op.v_dim;
  const auto kernel = widest <= 128 ? rope_store_kernel<4, kFp8> : widest <= 256 ? rope_store_kernel<8, kFp8> : rope_store_kernel<32, kFp8>;
  launch_kernel(kernel, dim3(op.q.rows, (n_units + kHeadsPerBlock - 1) / kHeadsPerBlock), kHeadsPerBlock * 32, kHeadsPerBlock * widest * 4, l.stream, op, norm_of_heads(q_norm, op.head_dim),
                norm_of_heads(k_norm, op.head_dim), l.step, l.mark);
}

}  // namespace

void rope_angles(const RopeAngles& op, const Launch& l) {
  if (op.angles.rows > 0) launch_kernel(angles_kernel, op.angles.rows, 64, 0, l.stream, op, l.step);
}

bool rope_rounds_queries(const RopeStore& op, const Launch& l) { return op.k && (op.kv.planes[0].format == FormatId::bf16 || op.kv.planes[0].format == FormatId::f16) && stays(op, l); }

void rope_store(const RopeStore& given, const HeadNorm* q_norm, const HeadNorm* k_norm, bool rounds_queries, const Launch& l) {
  if (given.q.rows == 0) return;
  RopeStore op = given;
  if (!op.k) op.n_kv_heads = 0;                                             // queries alone
  if (stays(op, l)) op.head_dim == 64 ? launch_staying<2>(op, q_norm, k_norm, rounds_queries, l) : launch_staying<4>(op, q_norm, k_norm, rounds_queries, l);
  else if (op.k && op.kv.planes[0].format == FormatId::fp8_e4m3) launch_rope_store<true>(op, q_norm, k_norm, l);
  else launch_rope_store<false>(op, q_norm, k_norm, l);
}

}  // namespace ridge::cuda
