// Matmul for 9 to 64 tokens on sm_90. There the input is what many blocks would read again and again (at 32 tokens and 32 rows a block, three times the bytes of nvfp4
// weights, out of the second-level cache), so a block of 8 warps takes 128 rows, 16 a warp, and shares the input through shared memory. Units go through a ring filled by
// cp.async, each warp its own tile's; the weights of the first ones are on their way before the kernel waits for its predecessor.
//
// The arithmetic is that of the other kernels: unit u belongs to chain u mod 8, and the chains are added in order. Eight blocks, a cluster, have the same rows and a
// chain each; at the end each adds up 16 of the rows, reading the others' sums where they lie.
#include <cooperative_groups.h>

#include "cuda/kernels/gemm.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/units.h"

namespace ridge::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32, kRows = kWarps * kTileRows, kChains = 8;

// A slot of the ring is kEach units of a chain: their weights [each][warp] and their inputs [each][group of 8 tokens][half][lane] 16 bytes.
template <class Unit, int NT>
struct Ring {
  static constexpr int kEach = Unit::kBytes < 1000 ? 2 : 1;
  static constexpr int kBlocks = NT > 4 || Unit::kBytes > 2000 ? 2 : 3;     // that a multiprocessor holds
  static constexpr int kWeights = kWarps * Unit::kBytes, kInputs = NT * 1024, kSlotBytes = kEach * (kWeights + kInputs);
  static constexpr int kSlots = (kBlocks == 2 ? 108 : 72) * 1024 / kSlotBytes;
  static_assert(kSlots >= 3);
  static constexpr int kSums = NT * 8 * kRows * 4;                          // afterwards: [token][row]
  static constexpr int kBytes = kSlots * kSlotBytes > kSums ? kSlots * kSlotBytes : kSums;
};

template <class Unit, int NT>
__global__ void __launch_bounds__(kThreads, Ring<Unit, NT>::kBlocks) several_tokens_kernel(const __grid_constant__ GemmParts parts, SeveralInput in) {
#if __CUDA_ARCH__ >= 900
  using R = Ring<Unit, NT>;
  constexpr int kEach = R::kEach, kSlots = R::kSlots;
  extern __shared__ __align__(128) std::byte memory[];
  start_dependents();
  int which = 0;
  while (which + 1 < parts.n && int(blockIdx.y) >= parts.part[which + 1].first_block) ++which;
  const GemmPart& part = parts.part[which];
  const int chain = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int first_row = (int(blockIdx.y) - part.first_block) * kRows, last_tile = (part.rows + kTileRows - 1) / kTileRows - 1;
  const std::byte* const tile = part.units + int64_t{min(first_row / kTileRows + warp, last_tile)} * in.n_units * Unit::kBytes;
  const int n_mine = chain < in.n_units ? (in.n_units - chain + kChains - 1) / kChains : 0, n_slots = (n_mine + kEach - 1) / kEach;

  const auto weights_at = [&](int slot, int each) { return memory + slot * R::kSlotBytes + (each * kWarps + warp) * Unit::kBytes; };
  const auto inputs_at = [&](int slot, int each) { return memory + slot * R::kSlotBytes + kEach * R::kWeights + each * R::kInputs; };
  const auto ask_weights = [&](int nth) {
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      if (nth * kEach + each >= n_mine) break;
      const std::byte* from = tile + int64_t{chain + (nth * kEach + each) * kChains} * Unit::kBytes;
      std::byte* to = weights_at(nth % kSlots, each);
#pragma unroll
      for (int i = lane; i < Unit::kBytes / 16; i += 32) copy_chunk(to + 16 * i, from + 16 * i);
    }
  };
  const auto ask_inputs = [&](int nth) {
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      if (nth * kEach + each >= n_mine) break;
      const uint4* from = in.x + int64_t{chain + (nth * kEach + each) * kChains} * in.n_groups * 64;
      std::byte* to = inputs_at(nth % kSlots, each);
      for (int i = threadIdx.x; i < in.n_groups * 64; i += kThreads) copy_chunk(to + 16 * i, from + i);
    }
  };
  for (int nth = 0; nth < kSlots - 1; ++nth) ask_weights(nth);
  await_predecessors();
  for (int nth = 0; nth < kSlots - 1; ++nth) {
    ask_inputs(nth);
    commit_chunks();
  }
  float acc[NT][4];
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[n][i] = 0;
  for (int nth = 0; nth < n_slots; ++nth) {
    await_chunks<kSlots - 2>();
    __syncthreads();                                                         // the slot is there for all, and the one before is free
    ask_weights(nth + kSlots - 1);
    ask_inputs(nth + kSlots - 1);
    commit_chunks();
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      if (nth * kEach + each >= n_mine) break;
      const auto held = Unit::template load<Staged>(weights_at(nth % kSlots, each), lane);
      const uint4* x = reinterpret_cast<const uint4*>(inputs_at(nth % kSlots, each)) + lane;
      uint32_t b[NT][8];
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        const uint4 u = x[n * 64], v = x[n * 64 + 32];
        b[n][0] = u.x, b[n][1] = u.y, b[n][2] = u.z, b[n][3] = u.w, b[n][4] = v.x, b[n][5] = v.y, b[n][6] = v.z, b[n][7] = v.w;
      }
      Unit::multiply(acc, held, b);
    }
  }
  await_chunks<0>();
  __syncthreads();

  float* const sums = reinterpret_cast<float*>(memory);                      // [token][row]
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[(n * 8 + 2 * q + i % 2) * kRows + warp * kTileRows + g + (i >= 2 ? 8 : 0)] = acc[n][i];
  const auto cluster = cooperative_groups::this_cluster();
  cluster.sync();
  for (int e = threadIdx.x; e < kTileRows * NT * 8; e += kThreads) {
    const int token = e / kTileRows, row_of_block = chain * kTileRows + e % kTileRows, row = first_row + row_of_block;
    if (row >= part.rows || token >= in.n_tokens) continue;
    float sum = 0;
#pragma unroll
    for (int c = 0; c < kChains; ++c) sum += cluster.map_shared_rank(sums, c)[token * kRows + row_of_block];
    sum = __fmul_rn(sum, part.scale);                                       // never fused with the addition: every kernel of this arithmetic rounds here
    if (part.row_scales) sum = __fmul_rn(sum, part.row_scales[row]);
    part.out[token * part.out_stride + row] = part.bias ? __fadd_rn(sum, part.bias[row]) : sum;
  }
  cluster.sync();                                                            // nobody leaves while another reads its sums
#endif
}

template <class Unit, int NT>
void launch(GemmParts parts, const SeveralInput& in, const Launch& l) {
  int n_blocks = 0;
  for (int i = 0; i < parts.n; ++i) {
    parts.part[i].first_block = n_blocks;
    parts.part[i].scale *= Unit::kFactor;
    n_blocks += (parts.part[i].rows + kRows - 1) / kRows;
  }
  const auto kernel = several_tokens_kernel<Unit, NT>;
  constexpr int kBytes = Ring<Unit, NT>::kBytes;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {kChains, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kChains, n_blocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = l.stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  cudaLaunchKernelEx(&config, kernel, parts, in);
}

}  // namespace

void matmul_several_tokens(const Weight& first, const GemmParts& parts, const SeveralInput& in, const Launch& l) {
  with_unit(first, [&](auto unit) {
    using Unit = decltype(unit);
    if (in.n_groups <= 2) launch<Unit, 2>(parts, in, l);
    else if (in.n_groups <= 4) launch<Unit, 4>(parts, in, l);
    else launch<Unit, 8>(parts, in, l);
  });
}

}  // namespace ridge::cuda
