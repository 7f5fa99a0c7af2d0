// What matmuls of several tokens (several_pairs.cu, several_wide.cu, several_bf16.cu) are made of: their parameters, which rows a pair of blocks has, and the ends of its tiles.
#pragma once
#include <type_traits>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/matmul/gemm.h"
#include "cuda/kernels/matmul/operand.h"
#include "cuda/kernels/matmul/several_norm.h"
#include "cuda/lib/activation.h"
#include "cuda/lib/async_copy.h"
#include "cuda/lib/cluster.h"
#include "cuda/lib/launch.h"
#include "cuda/lib/units.h"
#include "cuda/lib/wgmma.h"

namespace ridge::cuda::several {

constexpr int kCluster = 2, kChains = 8, kOwnChains = kChains / kCluster, kGroups = 4;       // kGroups: of row tiles in a block
constexpr int kConsumers = kGroups * kOwnChains, kCopiers = kGroups, kThreads = (kConsumers + kCopiers) * 32;      // warps that multiply, and that copy
constexpr int kShared = 227 * 1024;

struct Several {
  GemmPart part[3];                          // first_block: its first row tile
  int n_parts, n_tiles, n_units, n_tokens, n_places;      // n_places: tiles of a cluster
  const std::byte* x;                        // lib/lanes.h: NT groups
  NormBefore norm;                           // whose factor is its own
  Lanes out_lanes;                           // of what is activated; null: as rows
  bool activate;                             // part 0 is the gate, part 1 what it gates
  ActKind act;
  float* residual;                           // += residual_scale * out of part 0; null: none
  int64_t residual_stride;
  float residual_scale;
  NormAfter next;                            // of the residual stream
  __host__ __device__ bool activates() const { return activate; }
  __host__ __device__ bool norms() const { return norm.squares.at != nullptr; }
};
// One weight alone, with no norm before it and nothing activated.
struct SeveralPlain : Several {
  __host__ __device__ static constexpr bool activates() { return false; }
  __host__ __device__ static constexpr bool norms() { return false; }
};

// A warpgroup multiplies four row tiles by wgmma, with weights that are decoded in registers: in several_pairs.cu or, of many rows, in several_wide.cu.
template <class Unit> void pairs(const Several& f, int rt, int n_groups, const Launch& l);      // places of rt x 64 rows, rt being 1, 2 or, of units without scales for sums, 3
template <class Unit> void wide(const Several& f, int w, int n_groups, const Launch& l);       // of w x 64, w being 3 or, of units without scales for sums, 4
// bf16 is multiplied where it lies, both ways in several_bf16.cu.
template <> void pairs<Bf16Unit>(const Several& f, int rt, int n_groups, const Launch& l);
template <> void wide<Bf16Unit>(const Several& f, int w, int n_groups, const Launch& l);

// What put_ones() takes.
template <class Unit> constexpr int kOnesBytes = 0;
template <> inline constexpr int kOnesBytes<Q41Unit> = 9 * 256;

// The sums of a pair's place in shared memory, of a chain: [token][kStride].
template <int RT, int NT>
struct SumsOf {
  static constexpr int kRows = kGroups * RT * kTileRows, kTokens = NT * 8, kStride = kRows + 4, kBytes = kTokens * kStride * 4;
};

// Row tile `tile` of all: of the parts in a row, or with an activation of the gate's rows in the first half of a cluster's tile and what they gate in the second.
template <int RT>
struct Place {
  int which, tile;                           // within its part
  template <class F>
  __device__ Place(const F& f, int place, int of_cluster) {
    constexpr int kHalf = kGroups * RT / 2;
    which = 0;
    if constexpr (std::is_same_v<F, SeveralPlain>) {
      tile = place * kGroups * RT + of_cluster;
    } else if (f.activates()) {
      which = of_cluster >= kHalf;
      tile = place * kHalf + of_cluster % kHalf;
    } else {
      tile = place * kGroups * RT + of_cluster;
      while (which + 1 < f.n_parts && tile >= f.part[which + 1].first_block) ++which;
      tile -= f.part[which].first_block;
    }
  }
};

// The same of a place that is one block's: with an activation rows of the gate and of what it gates by turns.
struct WidePlace {
  int which, tile;                           // within its part
  __device__ WidePlace(const Several& f, int place, int n_tiles, int nth) {
    which = 0;
    if (f.activate) {
      which = nth % 2;
      tile = place * (n_tiles / 2) + nth / 2;
    } else {
      tile = place * n_tiles + nth;
      while (which + 1 < f.n_parts && tile >= f.part[which + 1].first_block) ++which;
      tile -= f.part[which].first_block;
    }
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A unit in registers, of which operand after operand is decoded.
template <class Unit> struct Opened : Operands<Unit> {};
template <> struct Opened<Fp8Unit<false>> {
  using Unit = Fp8Unit<false>;
  using Held = Unit::Held;
  __device__ static Held open(const std::byte* unit, int lane) { return Unit::load<Staged>(unit, lane); }
  __device__ static void take(uint32_t (&a)[4], const Held& held, int t) {
    const uint4& words = held.half[t / 2];
    Unit::decode(a[0], a[1], t % 2 == 0 ? words.x : words.z);
    Unit::decode(a[2], a[3], t % 2 == 0 ? words.y : words.w);
  }
};

// The second half of a unit is on its way while the first is multiplied.
template <> struct Opened<Fp8Unit<true>> : Operands<Fp8Unit<false>> {};
template <> struct Opened<Q8Unit> {
  using Held = Operands<Fp8Unit<false>>::Held;
  __device__ static Held open(const std::byte* unit, int lane) { return Operands<Fp8Unit<false>>::open(unit, lane); }
  __device__ static void take(uint32_t (&a)[4], Held& held, int t) {
    Q8Codes::widen(a, t % 2 ? held.words.z : held.words.x, t % 2 ? held.words.w : held.words.y);
    if (t == 1) held.words = *held.second;
  }
};
template <> struct Opened<Q4Unit> {
  struct Held { uint32_t words[4]; };
  __device__ static Held open(const std::byte* unit, int lane) {
    const uint4 words = reinterpret_cast<const uint4*>(unit)[lane];
    return {{words.x, words.y, words.z, words.w}};
  }
  __device__ static void take(uint32_t (&a)[4], const Held& held, int t) { Q4Codes::widen(a, held.words[t]); }
};
template <> struct Opened<Q41Unit> : Opened<Q4Unit> {};

// The operand that sums up a unit's input (lib/unit.h), in shared memory: eight rows of ones, eight of zeros, and so on, so that the first half's sums come to the first eight of a warp's rows; from the second eight on
// it is the operand for the second half.
constexpr int kOnesEight = 256;                                                // bytes of eight rows
template <class Unit>
__device__ inline void put_ones(std::byte* to) {
  if constexpr (kOnesBytes<Unit> > 0) {
    for (int i = threadIdx.x; i < kOnesBytes<Unit> / 4; i += blockDim.x) reinterpret_cast<uint32_t*>(to)[i] = Unit::ones(0, i * 4 / kOnesEight % 2);
    fence_for_wgmma();
  }
}

// Units with scales for sums: what the scale is for, a half or all of a unit, is summed up from zero, and added with it while the next is multiplied. Where they have minimums, the sums of their input come
// third, by an operand of ones. None is on its way from one run of units to the next: ptxas does not see through that, and would have each product waited for.
template <class Unit, int NT>
struct ScaledRun {
  using Own = Opened<Unit>;
  static constexpr bool kOfHalves = Unit::kScales == 2;
  static constexpr int kParts = Unit::kMinimums ? 3 : 2;                       // of a unit: its halves, and the sums of its input
  using Scale = std::conditional_t<kOfHalves, __half, float>;
  typename Own::Held held[2];                                                  // units by turns
  uint32_t a[2][2][4];                                                         // operands of their halves
  float sums[2][NT][4];                                                        // of the parts by turns, or of units
  Scale low[2], high[2];                                                       // of rows g and g + 8
  float min_low[2], min_high[2];                                               // what sums of the input are multiplied with
  const std::byte* ones;                                                       // where put_ones() has left them

  // With the first unit of a run open, where the run before has not said so.
  __device__ void start() { take(0, held[0]); }

  // n units: unit(u) where they lie, input(u) what they are multiplied with, acc(u) their chain's sums. open_next(u) opens unit u + 1, of the last one the first of the next run, and says whether
  // there is one; done(u): it has been multiplied.
  template <int n, class UnitOf, class InputOf, class AccOf, class OpenNext, class Done>
  __device__ void multiply(int lane, const UnitOf& unit, const InputOf& input, const AccOf& acc, const OpenNext& open_next, const Done& done) {
    const auto end_part = [&](int part) {
      const int u = part / kParts, of_unit = part % kParts;
      if (of_unit == 2) add_minimums(acc(u), buffer(part));
      else if (kOfHalves || of_unit == 1) add_to(acc(u), buffer(part), kOfHalves ? of_unit : buffer(part));
      if (of_unit + 1 == kParts) done(u);
    };
    bool more = false;
#pragma unroll
    for (int part = 0; part < n * kParts; ++part) {
      const int u = part / kParts, of_unit = part % kParts;
      if (of_unit == 0) more = open_next(u);
      multiply_part(part, unit(u), input(u), lane);
      if (part > 0) {
        wgmma_await<1>();
        end_part(part - 1);
      }
      if (of_unit == 0) take(1, held[u % 2]);
      if (of_unit == 1 && more) take(0, held[(u + 1) % 2]);
    }
    wgmma_await<0>();
    end_part(n * kParts - 1);
  }

 private:
  // Where a part's sums are.
  static __device__ constexpr int buffer(int part) { return kOfHalves ? part % 2 : part / kParts % 2; }

  __device__ void take(int h, typename Own::Held& from) {
#pragma unroll
    for (int t = 0; t < 2; ++t) Own::take(a[h][t], from, 2 * h + t), hold(a[h][t]);
  }
  __device__ void multiply_part(int part, const std::byte* unit, uint64_t b, int lane) {
    const int h = part % kParts;
    float(&to)[NT][4] = sums[buffer(part)];
    wgmma_fence();
    if constexpr (Unit::kMinimums)
      if (h == 2) {
        const uint64_t first_half = wgmma_units(ones, kOnesEight), second_half = wgmma_units(ones + kOnesEight, kOnesEight);
        wgmma_groups<true>(to, first_half, b);
        wgmma_groups(to, first_half, b + 2), wgmma_groups(to, second_half, b + 4), wgmma_groups(to, second_half, b + 6);
        wgmma_commit();
        return Operands<Unit>::load_minimums(min_low, min_high, unit, lane);
      }
    if (kOfHalves || h == 0) wgmma_groups<true>(to, a[h][0], b + 4 * h);
    else wgmma_groups(to, a[h][0], b + 4 * h);
    wgmma_groups(to, a[h][1], b + 4 * h + 2);
    wgmma_commit();
    if constexpr (kOfHalves) {
      const __half* const scales = reinterpret_cast<const __half*>(unit + Unit::kCodeBytes) + h * 16 + lane / 4;
      low[h] = scales[0], high[h] = scales[8];
    } else if (h == 0) {
      low[buffer(part)] = high[buffer(part)] = *reinterpret_cast<const float*>(unit + Unit::kCodeBytes);
    }
  }
  __device__ static float number(__half v) { return __half2float(v); }
  __device__ static float number(float v) { return v; }
  __device__ void add_to(float (&acc)[NT][4], int from, int scale) {
    hold_all(sums[from]);
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[n][j] = fmaf(sums[from][n][j], number(j < 2 ? low[scale] : high[scale]), acc[n][j]);
  }
  __device__ void add_minimums(float (&acc)[NT][4], int from) {
    hold_all(sums[from]);
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float(&factor)[2] = j < 2 ? min_low : min_high;
        acc[n][j] = fmaf(sums[from][n][2 + j % 2], factor[1], fmaf(sums[from][n][j % 2], factor[0], acc[n][j]));
      }
  }
};

// Four rows of a part, of which the last may be none.
struct FourRows {
  const GemmPart& part;
  int first, n;
  __device__ FourRows(const GemmPart& part, int first) : part(part), first(first), n(part.rows - first) {}

  // Never fused with the addition: every kernel of this arithmetic rounds here.
  __device__ float4 scaled(const float4& sum, float factor) const {
    const auto at = [&](const float* p, int j) { return p[min(first + j, part.rows - 1)]; };
    float4 scale = {part.scale, part.scale, part.scale, part.scale};
    if (const float* p = part.row_scales) scale = {scale.x * at(p, 0), scale.y * at(p, 1), scale.z * at(p, 2), scale.w * at(p, 3)};
    float4 v = {__fmul_rn(__fmul_rn(sum.x, scale.x), factor), __fmul_rn(__fmul_rn(sum.y, scale.y), factor), __fmul_rn(__fmul_rn(sum.z, scale.z), factor), __fmul_rn(__fmul_rn(sum.w, scale.w), factor)};
    if (const float* p = part.bias) v = {__fadd_rn(v.x, at(p, 0)), __fadd_rn(v.y, at(p, 1)), __fadd_rn(v.z, at(p, 2)), __fadd_rn(v.w, at(p, 3))};
    return v;
  }

  // Of a token's outputs.
  __device__ float4 load(const float* from) const {
    float4 v = {0, 0, 0, 0};
    if (n > 0) v.x = __ldcg(from + first);
    if (n > 1) v.y = __ldcg(from + first + 1);
    if (n > 2) v.z = __ldcg(from + first + 2);
    if (n > 3) v.w = __ldcg(from + first + 3);
    return v;
  }
  __device__ void store(float* to, const float4& v) const {
    to += first;
    if (n >= 4 && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
      *reinterpret_cast<float4*>(to) = v;
    } else if (n > 0) {
      to[0] = v.x;
      if (n > 1) to[1] = v.y;
      if (n > 2) to[2] = v.z;
      if (n > 3) to[3] = v.w;
    }
  }
};

// What a residual stream holds for four rows of a token.
__device__ inline float4 before_of(const Several& f, const FourRows& rows, int token) {
  return f.residual && token < f.n_tokens ? rows.load(f.residual + token * f.residual_stride) : float4{0, 0, 0, 0};
}
// Their sums, and with an activation those of what they gate, where they go. factors: of a norm before, by token; next: weights_of() the one that follows.
template <class F>
__device__ inline void finish(const F& f, const FourRows& rows, int token, const float4& sum, const float4& up_sum, const float4& before, const float* factors, const float4& next) {
  const float factor = f.norms() ? factors[token] : 1.0f;
  float4 v = rows.scaled(sum, factor);
  if (f.activates()) {
    float gate[4] = {v.x, v.y, v.z, v.w};
    if (f.act == ActKind::silu) {
      act_all<ActKind::silu>(gate);
    } else {
#pragma unroll 1
      for (int j = 0; j < 4; ++j) {                                            // code for one number, which the next ones move up to
        const float first = act(f.act, gate[0]);
        gate[0] = gate[1], gate[1] = gate[2], gate[2] = gate[3], gate[3] = first;
      }
    }
    const float4 up = FourRows(f.part[1], rows.first).scaled(up_sum, factor);
    v = {__fmul_rn(gate[0], up.x), __fmul_rn(gate[1], up.y), __fmul_rn(gate[2], up.z), __fmul_rn(gate[3], up.w)};
  }
  if (f.out_lanes.data) {
    if (rows.n > 0) f.out_lanes.put_four(f.out_lanes.at(token, rows.first), {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)});
    return;
  }
  rows.store(rows.part.out + token * rows.part.out_stride, v);
  if (!f.residual) return;
  v = {fmaf(f.residual_scale, v.x, before.x), fmaf(f.residual_scale, v.y, before.y), fmaf(f.residual_scale, v.z, before.z), fmaf(f.residual_scale, v.w, before.w)};
  rows.store(f.residual + token * f.residual_stride, v);
  if (f.next.lanes.data && rows.n > 0) leave(f.next, token, rows.first, v, next);
}

// A lane's sums of row tile `tile` of a place and a chain, as products leave them (lib/mma.h).
template <int RT, int NT>
__device__ inline void put_sums(float* sums, const float (&acc)[NT][4], int chain, int tile, int lane) {
  using Of = SumsOf<RT, NT>;
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[(chain * Of::kTokens + 8 * n + 2 * (lane % 4) + i % 2) * Of::kStride + tile * kTileRows + lane / 4 + i / 2 * 8] = acc[n][i];
}

// The end of a tile: chains are added up in order, in the block with the first ones, which sends its sums to the other, and then in that one. Each when all sums of the block's own chains lie there.
template <int RT, int NT, class F, int kThreadsOf = kConsumers * 32>
struct Ends {
  using Of = SumsOf<RT, NT>;
  static constexpr int kFours = Of::kRows / 4, kItems = kFours * Of::kTokens;      // of four rows and a token
  static constexpr int kApart = kThreadsOf / kFours, kFinishing = kApart * kFours, kMost = (Of::kTokens + kApart - 1) / kApart;      // threads that finish: as many as have the same rows of every token
  const F& f;
  float* sums;                                                                 // of this block's chains
  float* others;                                                               // of the other's, added up
  Barrier* sent;                                                               // their bytes
  const float* factors;                                                        // of tokens

  __device__ float4 add(float4 sum, int token, int row) const {
#pragma unroll
    for (int c = 0; c < kOwnChains; ++c) {
      const float4 v = *reinterpret_cast<const float4*>(sums + (c * Of::kTokens + token) * Of::kStride + row);
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    return sum;
  }

  __device__ void send_sums(int other) const {
    const uint32_t to = address_in(shared_address(others), other), gate = address_in(shared_address(sent), other);
#pragma unroll
    for (int e = threadIdx.x; e < kItems; e += kThreadsOf) {
      const int token = e / kFours, row = e % kFours * 4;
      send(to + (token * Of::kStride + row) * 4, add({0, 0, 0, 0}, token, row), gate);
    }
  }

  // What a thread finishes, if this block does, all of it of the same four rows; what a residual stream holds for them is asked for before the sums are there.
  struct Finish {
    int in_place, first_token, apart;
    FourRows rows;
    float4 next, before[kMost];
  };
  __device__ Finish start_finish(int place, bool finishes) const {
    if (finishes && threadIdx.x == 0) arrive_expecting(sent, kItems * 16);
    const int thread = int(threadIdx.x), token = f.activates() ? thread / (kFours / 2) : thread / kFours;      // by numbers that the compiler knows
    const int in_place = (thread - token * (f.activates() ? kFours / 2 : kFours)) * 4;
    const Place<RT> at(f, place, in_place / kTileRows);
    Finish own{in_place, thread < kFinishing ? token : Of::kTokens, f.activates() ? 2 * kApart : kApart, FourRows(f.part[at.which], at.tile * kTileRows + in_place % kTileRows), {}, {}};
    if (finishes && own.rows.n > 0) own.next = weights_of(f.next, own.rows.first);
#pragma unroll
    for (int i = 0; i < kMost; ++i)
      if (finishes) own.before[i] = before_of(f, own.rows, own.first_token + i * own.apart);
    return own;
  }
  __device__ void finish(const Finish& own, uint32_t sent_phase) const {
    await_in_cluster(sent, sent_phase);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int token = own.first_token + i * own.apart;
      if (token >= f.n_tokens) break;
      const auto sum = [&](int row) { return add(*reinterpret_cast<const float4*>(others + token * Of::kStride + row), token, row); };
      several::finish(f, own.rows, token, sum(own.in_place), f.activates() ? sum(own.in_place + Of::kRows / 2) : float4{}, own.before[i], factors, own.next);
    }
  }
};

// The end of a place that is one block's, of kTiles row tiles of a warp each, by these warps: a lane's sums of all chains go where they belong. `sums`: [token][kTiles * 16 + 4].
template <int kTiles, int NT>
__device__ inline void finish_place(const Several& f, int place, float* sums, const float (&sum)[NT][4], int tile, int lane, Barrier* met, const float* factors) {
  constexpr int kRows = kTiles * kTileRows, kStride = kRows + 4, kThreadsOf = kTiles * 32;
  meet(met, 1, kThreadsOf);                                                    // the sums of the place before have been read
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[(8 * n + 2 * (lane % 4) + i % 2) * kStride + tile * kTileRows + lane / 4 + i / 2 * 8] = sum[n][i];
  meet(met, 1, kThreadsOf);
  // All that a thread has is of the same four rows.
  const int n_fours = f.activate ? kRows / 8 : kRows / 4, four = int(threadIdx.x) % n_fours, own = f.activate ? four / 4 * 2 : four / 4;
  const WidePlace at(f, place, kTiles, own);
  const FourRows rows(f.part[at.which], at.tile * kTileRows + four % 4 * 4);
  const float* const from = sums + own * kTileRows + four % 4 * 4;
  const float4 next = rows.n > 0 ? weights_of(f.next, rows.first) : float4{};
  // Rolled up: code that runs once has to be fetched first, and four copies of this were half of the kernel.
#pragma unroll 1
  for (int token = threadIdx.x / n_fours; token < f.n_tokens; token += kThreadsOf / n_fours) {
    const float4* const row = reinterpret_cast<const float4*>(from + token * kStride);
    finish(f, rows, token, *row, row[kTileRows / 4], before_of(f, rows, token), factors, next);
  }
}

#endif

}  // namespace ridge::cuda::several
