// The input of the matmul of few tokens, which comes to shared memory in bf16: with a norm on the way, as it is, in pieces that the phase before still makes, or in parts where there is no room for all of it.
#pragma once
#include "cuda/kernels/matmul/few_tokens.h"

namespace ridge::cuda::few {

__device__ inline void put_four(std::byte* row, int k, const float4& v) { *reinterpret_cast<uint2*>(row + 2 * k) = {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)}; }

// Whole fours of a row (cols is a multiple of four); zeros beyond it.
__device__ inline float4 four_within(const float* row, int k, int cols) {
  float4 v{0, 0, 0, 0};
  if (k < cols) v = __ldcg(reinterpret_cast<const float4*>(row + k));
  return v;
}

#if defined(RIDGE_SM90)
// The input's rows as bf16 in shared memory. Short code on purpose: it runs once a kernel, from instructions that are not in the multiprocessor's cache by then. What is waited
// for is asked for first thing after the wait, by addresses that were there before; the norm's weights, which may still be on their way, are touched after that.
// `there` is passed when what was asked for has come. `polls`: what a norm is to make it of comes in a relay. kSeveral: what the next tokens are made of is asked for before the ones before
// are used, since one after the other they cost a trip to the second-level cache each. `squared` is passed when all squares are there. Warps meet when their numbers have come and go on together: each on
// its own, as numbers come, they wait for the same code one after the other, and a layer took 33.9 us instead of 31.3 (nvfp4; with `there` before they meet 31.8). kOneToken: all teams have a part of its norm (30.8).
template <int kTeams, bool kSeveral, bool kOneToken>
__device__ void take_input(std::byte* to, float* squares_of_warps, Barrier* there, Barrier* squared, const Few& f, int n_tokens, bool polls) {
  constexpr int kGroups = kOneToken ? 1 : kTeams, kGroupThreads = kTeams / kGroups * kNormThreads;      // threads that have a token's norm
  const int group = threadIdx.x / kGroupThreads, thread = threadIdx.x % kGroupThreads;
  int padded = f.n_units * kUnit, stride = f.shared_stride;
  keep(padded, stride);
  if (f.norm) {
    constexpr int kHeld = 1024 / kGroupThreads, kApart = 4 * kGroupThreads;  // chunks a thread keeps, more are read again; numbers from one to the next
    const int first = 4 * thread;
    float4 weight[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) weight[i] = f.norm_weight ? four_within(f.norm_weight, first + i * kApart, f.cols) : float4{1, 1, 1, 1};
    const float offset = f.norm_weight ? f.weight_offset : 0.0f;
    int cols = f.cols;
    keep(cols);
    const float* from = reinterpret_cast<const float*>(f.x + group * f.x_stride) + first;
    int n_ahead = group < n_tokens ? cols - first : 0;
    settle(from, n_ahead);
    if (!polls) await_predecessors();
    float4 v[kHeld];
    const auto load = [&](float4 (&v)[kHeld], const float* from) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) v[i] = i * kApart < n_ahead ? not_made<float4>() : float4{0, 0, 0, 0};
      load_made(v, reinterpret_cast<const float4*>(from), kGroupThreads, polls);
    };
    load(v, from);
    for (int token = group; token < n_tokens; token += kGroups) {
      [[maybe_unused]] float4 next[kHeld];
      if (kSeveral && token + kGroups < n_tokens) load(next, from + kGroups * (f.x_stride / 4));
      std::byte* const row = to + token * stride;
      const auto put = [&](const float4& v, const float4& w, int k) {
        if (k < padded) put_four(row, k, {v.x * (w.x + offset), v.y * (w.y + offset), v.z * (w.z + offset), v.w * (w.w + offset)});
      };
      if constexpr (kOneToken) meet<kTeams>();
      else sync_group(group);
      if (threadIdx.x == 0 && token == 0) arrive_with(there, v[0].x + v[kHeld - 1].x);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) settle(weight[i]);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) put(v[i], weight[i], first + i * kApart);
      float squares[2] = {};                                                // of even chunks and odd ones of kNormThreads
#pragma unroll
      for (int i = 0; i < kHeld; ++i) squares[kOneToken ? 0 : i % 2] += tile_squares(v[i]);
#pragma unroll 1
      for (int k = kHeld * kApart; k < padded; k += kApart) {
        const float4 more = four_within(from, k, n_ahead);
        put(more, f.norm_weight ? four_within(f.norm_weight, first + k, cols) : float4{1, 1, 1, 1}, first + k);
        (kOneToken || k / kApart % 2 == 0 ? squares[0] : squares[1]) += tile_squares(more);
      }
      const float of_warp = kOneToken ? warp_sum_of_quads(squares[0]) : warp_squares(squares);
      if (thread % 32 == 0) squares_of_warps[token * kTeam + thread / 32] = of_warp;
      from += kGroups * (f.x_stride / 4);
      if constexpr (kSeveral) {
#pragma unroll
        for (int i = 0; i < kHeld; ++i) v[i] = next[i];
      } else {
        if (token + kGroups < n_tokens) load(v, from);
      }
    }
    arrive_as_warp(squared, thread % 32);
    return;
  }
  constexpr int kThreads = kTeams * kNormThreads;
  if constexpr (kSeveral) {
    await_predecessors();
    if (f.x_bf16) {
#pragma unroll 1
      for (int token = 0; token < n_tokens; ++token)
#pragma unroll 1
        for (int k = 8 * int(threadIdx.x); k < padded; k += 8 * kThreads) copy_chunk(to + token * stride + 2 * k, f.x + token * f.x_stride + 2 * k);
      commit_chunks();
      await_chunks<0>();
      return;
    }
    constexpr int kAtOnce = 4, kEach = 4 / kTeams;                          // tokens, and fours of each
#pragma unroll 1
    for (int token = 0; token < n_tokens; token += kAtOnce)
#pragma unroll 1
      for (int k = 4 * int(threadIdx.x); k < padded; k += kEach * 4 * kThreads) {
        float4 v[kAtOnce][kEach];
#pragma unroll
        for (int t = 0; t < kAtOnce; ++t)
#pragma unroll
          for (int i = 0; i < kEach; ++i) v[t][i] = four_within(reinterpret_cast<const float*>(f.x + (token + t) * f.x_stride), k + i * 4 * kThreads, token + t < n_tokens ? f.cols : 0);
#pragma unroll
        for (int t = 0; t < kAtOnce; ++t)
#pragma unroll
          for (int i = 0; i < kEach; ++i)
            if (token + t < n_tokens && k + i * 4 * kThreads < padded) put_four(to + (token + t) * stride, k + i * 4 * kThreads, v[t][i]);
      }
    return;
  }
  // All loads of a thread before the first is used: one after the other they cost a trip to the second-level cache each.
  const auto copy = [&](auto held, auto&& put) {                            // held: so many pieces of 16 bytes at once
    using Held = decltype(held);
    using Piece = std::remove_all_extents_t<typename Held::type>;
    constexpr int kAtOnce = std::extent_v<typename Held::type>, kNumbers = std::is_same_v<Piece, uint4> ? 8 : 4, kApart = kNumbers * kThreads;
    const int first = kNumbers * int(threadIdx.x);
    int n_ahead = (kNumbers == 8 ? padded : f.cols) - first;
    const std::byte* from = f.x + 16 * int64_t{threadIdx.x};
    settle(from, n_ahead);
    await_predecessors();
    Piece v[kAtOnce];
    const auto load = [&](int k) {
      const Piece* const p = reinterpret_cast<const Piece*>(from) + k / kNumbers;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        v[i] = {};
        if (k + i * kApart < n_ahead) v[i] = __ldcg(p + i * kThreads);
      }
    };
    load(0);
    for (int token = 0; token < n_tokens; ++token, from += f.x_stride) {
      std::byte* const row = to + token * stride;
#pragma unroll 1
      for (int k = 0; first + k < padded; k += kAtOnce * kApart) {
        if (token + k > 0) load(k);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          if (first + k + i * kApart < padded) put(row, first + k + i * kApart, v[i]);
      }
    }
  };
  if (f.x_bf16) copy(std::type_identity<uint4[6 / kTeams]>{}, [](std::byte* row, int k, const uint4& v) { *reinterpret_cast<uint4*>(row + 2 * k) = v; });
  else copy(std::type_identity<float4[4 / kTeams]>{}, [](std::byte* row, int k, const float4& v) { put_four(row, k, v); });
}
#endif

// The input of a phase that is activated by the one before, in pieces of 16 bytes a thread of two teams: the next one is on its way while one is multiplied, and is looked at when it
// is needed. So the phase begins while others still make the end of its input. kRests: the last piece may be less, for some of the warps.
constexpr int kPiece = 4096;
template <class Unit>
constexpr bool kPieceIsRuns = kPiece % (kUnit * kTeam * Plan<Unit>::kRuns) == 0 && (Plan<Unit>::kRuns < Plan<Unit>::kSlots * Plan<Unit>::kEach || kPiece == kUnit * kTeam * Plan<Unit>::kRuns);
static_assert(kPieceIsRuns<Nvfp4Unit> && kPieceIsRuns<Mxfp4Unit> && kPieceIsRuns<Fp8Unit<false>> && kPieceIsRuns<Fp8Unit<true>>);
// Inputs of a phase: whole pieces, or so many that a rest is little of them.
template <class Unit>
bool fit_a_phase(int64_t cols) {
  constexpr int kLeast = 3, kWhole = kUnit * kTeam * std::max(kRunIsRound<Unit> ? Plan<Unit>::kEach : Plan<Unit>::kRuns, 1);     // of a slot, or of a run
  return cols % kPiece == 0 || (cols > kLeast * kPiece && cols % kWhole == 0);
}
template <bool kRests>
struct Pieces {
  std::byte* to;
  const std::byte* from;
  int n_mine;                                                                // pieces that the warp has a part of
  __device__ Pieces(std::byte* memory, const Few& f) : to(memory + f.input_at + 16 * threadIdx.x), from(f.x + 16 * threadIdx.x), n_mine(kRests ? (f.cols - int(threadIdx.x / 32 * 256) + kPiece - 1) / kPiece : 0) {}
  __device__ bool has(int nth) const { return !kRests || nth < n_mine; }
  __device__ void ask(int nth) const {
    if (!has(nth)) return;
    copy_chunk(to + nth * 2 * kPiece, from + nth * 2 * kPiece);
    commit_chunks();
  }
  // By all threads of the teams: piece nth, which has been asked for, is there. Then the next one is asked for.
  __device__ void pass(int nth, int n) const {
    await_chunks<0>();
    if (has(nth)) {
      uint4* const mine = reinterpret_cast<uint4*>(to + nth * 2 * kPiece);
      uint4 v = *mine;
      if (__any_sync(0xffffffffu, unmade(v))) {                             // lanes stay together: a loop without branches follows
        do v = load_relayed(reinterpret_cast<const uint4*>(from + nth * 2 * kPiece));
        while (__any_sync(0xffffffffu, unmade(v)));
        *mine = v;
      }
    }
    meet<2>();
    if (nth + 1 < n) ask(nth + 1);
  }
};

// The input of several tokens in parts of kPiece numbers, by threads of two teams, where shared memory has no room for all of it: two are there, or on their way, at a time.
struct Parts {
  const Few& f;
  std::byte* to;
  __device__ int bytes() const { return f.n_tokens * f.shared_stride; }
  __device__ void ask(int nth) const {
    std::byte* row = to + nth % 2 * bytes() + 16 * threadIdx.x;
    const std::byte* from = f.x + (f.x_bf16 ? 2 : 4) * (nth * kPiece + 8 * int(threadIdx.x));
#pragma unroll 1
    for (int token = 0; token < f.n_tokens; ++token, row += f.shared_stride, from += f.x_stride) {
      if (f.x_bf16) {
        copy_chunk(row, from);
      } else {
        const float4 a = __ldcg(reinterpret_cast<const float4*>(from)), b = __ldcg(reinterpret_cast<const float4*>(from) + 1);
        *reinterpret_cast<uint4*>(row) = {pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)};
      }
    }
    commit_chunks();
  }
  // Part nth of n is there; the one before it has been read by all, and the next one is on its way.
  __device__ void pass(int nth, int n) const {
    if (nth > 0) meet<2>();
    if (nth == 0) ask(0);
    if (nth + 1 < n) ask(nth + 1);
    else commit_chunks();
    await_chunks<1>();
    meet<2>();
  }
};

}  // namespace ridge::cuda::few
