// The warpgroup's tensor core instruction (sm_90a): D[64 x N] += A[64 x 16] * B[16 x N], f32 sums, A from registers, B from shared memory. Four warps take 16 rows
// each, and a warp's share of A and D lies in its registers as in mma.m16n8k16 (lib/mma.h), so that a kernel for few rows on that instruction can give the
// same bits (measured on the H200: equal in every case tried). It runs on its own: operands may be touched again once wgmma_await says so. kFresh: D is
// written, not added to. (Operands A of two kinds in registers across a loop, queries and weights of an attention kernel, were given the same registers by ptxas 13.0,
// one overwriting the other: what stays over a loop lies in shared memory.)
//
// B in shared memory: rows of 128 bytes (64 numbers of 16 bits) whose 16-byte chunk c of row r lies at chunk c ^ (r % 8); tiles start at multiples of 1024 bytes.
//   plain        rows are n, numbers are k: a step of 16 along k is 32 bytes further
//   transposed   rows are k, numbers are n: panels of 64 numbers lie panel_bytes apart, and a step of 16 along k is 2048 bytes further
// A in shared memory, too: the same, or as units of bf16 (lib/unit.h), 64 rows one after the other: a step along k is 256 bytes further.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "cuda/lib/async_copy.h"
#include "cuda/lib/mma.h"

namespace ridge::cuda {

// Where chunk c of row r lies in a tile.
__host__ __device__ constexpr int swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

constexpr uint32_t kTileHigh = 1u << 30 | 1024 >> 4;                         // the upper half of what wgmma is told of a tile, the same for all
__device__ inline uint64_t wgmma_tile(const void* tile, int panel_bytes = 16) {
  return (uint64_t{kTileHigh} << 32) | (uint64_t(panel_bytes >> 4) << 16) | ((shared_address(tile) >> 4) & 0x3FFF);
}

// The same from its lower half, to which a step's sixteenths of bytes may be added.
__device__ inline uint64_t wgmma_tile_at(uint32_t low) {
  uint64_t tile;
  asm("mov.b64 %0, {%1, %2};" : "=l"(tile) : "r"(low), "r"(kTileHigh));
  return tile;
}

// eight_rows_bytes: from eight rows to the next eight.
__device__ inline uint64_t wgmma_units(const void* units, int eight_rows_bytes = 1024) { return (uint64_t(eight_rows_bytes >> 4) << 32) | (uint64_t{128 >> 4} << 16) | ((shared_address(units) >> 4) & 0x3FFF); }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void wgmma_await() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory"); }

// Keeps the compiler from moving uses of D across a wait.
template <int n>
__device__ inline void hold(float (&d)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int m, int n>
__device__ inline void hold_all(float (&d)[m][n]) {
#pragma unroll
  for (int i = 0; i < m; ++i) hold(d[i]);
}

// The same for operands: made before wgmma_fence, not between it and their use, where ptxas would have one wgmma wait for the other.
__device__ inline void hold(uint32_t (&a)[4]) { asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory"); }

// Ends a basic block: ptxas sinks a softmax below the wait that it is there to fill, but not out of its block. `n` is never negative, which it cannot know.
__device__ inline void end_block(int n) {
  asm volatile("{\n.reg .pred never;\nagain:\nsetp.lt.s32 never, %0, 0;\n@!never bra on;\nnanosleep.u32 64;\nbra again;\non:\n}" ::"r"(n) : "memory");
}

// The sums of a wgmma, as the operands of an asm statement and as their names in it: d[0], d[1], ...
#define RIDGE_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define RIDGE_SUMS_16(i) RIDGE_SUMS_4(i), RIDGE_SUMS_4(i + 4), RIDGE_SUMS_4(i + 8), RIDGE_SUMS_4(i + 12)
#define RIDGE_SUMS_64 RIDGE_SUMS_16(0), RIDGE_SUMS_16(16), RIDGE_SUMS_16(32), RIDGE_SUMS_16(48)
#define RIDGE_NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RIDGE_NAMES_64 \
  RIDGE_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RIDGE_NAMES_80 RIDGE_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"

// For 8, 16 and 32 tokens, by groups of eight: d[n] as mma_bf16 has it.
#define RIDGE_GROUP(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
template <bool kFresh = false>
__device__ inline void wgmma_groups(float (&d)[1][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %9, 0;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, add, 1, 1, 0;}"
               : RIDGE_GROUP(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int(kFresh)));
}
template <bool kFresh = false>
__device__ inline void wgmma_groups(float (&d)[2][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %13, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, add, 1, 1, 0;}"
               : RIDGE_GROUP(0), RIDGE_GROUP(1)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int(kFresh)));
}
template <bool kFresh = false>
__device__ inline void wgmma_groups(float (&d)[4][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, add, 1, 1, 0;}"
               : RIDGE_GROUP(0), RIDGE_GROUP(1), RIDGE_GROUP(2), RIDGE_GROUP(3)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int(kFresh)));
}

// A from shared memory.
template <bool kFresh = false>
__device__ inline void wgmma_groups(float (&d)[1][4], uint64_t a, uint64_t b) {
  asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %6, 0;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, add, 1, 1, 0, 0;}" : RIDGE_GROUP(0) : "l"(a), "l"(b), "n"(int(kFresh)));
}
template <bool kFresh = false>
__device__ inline void wgmma_groups(float (&d)[2][4], uint64_t a, uint64_t b) {
  asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %10, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, add, 1, 1, 0, 0;}"
               : RIDGE_GROUP(0), RIDGE_GROUP(1)
               : "l"(a), "l"(b), "n"(int(kFresh)));
}
template <bool kFresh = false>
__device__ inline void wgmma_groups(float (&d)[4][4], uint64_t a, uint64_t b) {
  asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, add, 1, 1, 0, 0;}"
               : RIDGE_GROUP(0), RIDGE_GROUP(1), RIDGE_GROUP(2), RIDGE_GROUP(3)
               : "l"(a), "l"(b), "n"(int(kFresh)));
}
#undef RIDGE_GROUP

template <class T, bool kTransposed, bool kFresh = false>
__device__ inline void wgmma(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %38, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                 RIDGE_NAMES_32
                 "}, {%32, %33, %34, %35}, %36, add, 1, 1, %37;}"
               : RIDGE_SUMS_16(0), RIDGE_SUMS_16(16)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int(kTransposed)), "n"(int(kFresh)));
  else
    asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %38, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 RIDGE_NAMES_32
                 "}, {%32, %33, %34, %35}, %36, add, 1, 1, %37;}"
               : RIDGE_SUMS_16(0), RIDGE_SUMS_16(16)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int(kTransposed)), "n"(int(kFresh)));
}

template <class T, bool kTransposed, bool kFresh = false>
__device__ inline void wgmma(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %70, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                 RIDGE_NAMES_64
                 "}, {%64, %65, %66, %67}, %68, add, 1, 1, %69;}"
               : RIDGE_SUMS_64
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int(kTransposed)), "n"(int(kFresh)));
  else
    asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %70, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 RIDGE_NAMES_64
                 "}, {%64, %65, %66, %67}, %68, add, 1, 1, %69;}"
               : RIDGE_SUMS_64
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int(kTransposed)), "n"(int(kFresh)));
}

// A from shared memory, too: rows of 128 bytes like B.
template <class T, bool kTransposed, bool kFresh>
__device__ inline void wgmma(float (&d)[32], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %35, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                 RIDGE_NAMES_32
                 "}, %32, %33, add, 1, 1, 0, %34;}"
               : RIDGE_SUMS_16(0), RIDGE_SUMS_16(16)
               : "l"(a), "l"(b), "n"(int(kTransposed)), "n"(int(kFresh)));
  else
    asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %35, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 RIDGE_NAMES_32
                 "}, %32, %33, add, 1, 1, 0, %34;}"
               : RIDGE_SUMS_16(0), RIDGE_SUMS_16(16)
               : "l"(a), "l"(b), "n"(int(kTransposed)), "n"(int(kFresh)));
}

template <class T, bool kFresh>
__device__ inline void wgmma(float (&d)[64], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                 RIDGE_NAMES_64
                 "}, %64, %65, add, 1, 1, 0, 0;}"
               : RIDGE_SUMS_64
               : "l"(a), "l"(b), "n"(int(kFresh)));
  else
    asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 RIDGE_NAMES_64
                 "}, %64, %65, add, 1, 1, 0, 0;}"
               : RIDGE_SUMS_64
               : "l"(a), "l"(b), "n"(int(kFresh)));
}

// bf16 for so many tokens, A from registers and from shared memory. fresh: as kFresh, known as the kernel runs. d: the number of sums, d1 to d5 those that follow it.
#define RIDGE_WGMMA(tokens, names, d0, d1, d2, d3, d4, d5, ...)                                                                                              \
  __device__ inline void wgmma(float (&d)[tokens / 2], const uint32_t (&a)[4], uint64_t b, bool fresh) {                                                     \
    asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %" #d5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #tokens "k16.f32.bf16.bf16 {" names                    \
                 "}, {%" #d0 ", %" #d1 ", %" #d2 ", %" #d3 "}, %" #d4 ", add, 1, 1, 0;}"                                                                     \
                 : __VA_ARGS__                                                                                                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(fresh)));                                                                     \
  }                                                                                                                                                          \
  __device__ inline void wgmma(float (&d)[tokens / 2], uint64_t a, uint64_t b, bool fresh) {                                                                 \
    asm volatile("{.reg .pred add;\nsetp.eq.u32 add, %" #d2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #tokens "k16.f32.bf16.bf16 {" names                    \
                 "}, %" #d0 ", %" #d1 ", add, 1, 1, 0, 0;}"                                                                                                  \
                 : __VA_ARGS__                                                                                                                               \
                 : "l"(a), "l"(b), "r"(int(fresh)));                                                                                                         \
  }
RIDGE_WGMMA(64, RIDGE_NAMES_32, 32, 33, 34, 35, 36, 37, RIDGE_SUMS_16(0), RIDGE_SUMS_16(16))
RIDGE_WGMMA(128, RIDGE_NAMES_64, 64, 65, 66, 67, 68, 69, RIDGE_SUMS_64)
RIDGE_WGMMA(184, RIDGE_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91", 92, 93, 94, 95, 96, 97, RIDGE_SUMS_64, RIDGE_SUMS_16(64), RIDGE_SUMS_4(80),
            RIDGE_SUMS_4(84), RIDGE_SUMS_4(88))
RIDGE_WGMMA(192, RIDGE_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95", 96, 97, 98, 99, 100, 101, RIDGE_SUMS_64, RIDGE_SUMS_16(64),
            RIDGE_SUMS_16(80))
#undef RIDGE_WGMMA

#undef RIDGE_SUMS_4
#undef RIDGE_SUMS_16
#undef RIDGE_SUMS_64
#undef RIDGE_NAMES_32
#undef RIDGE_NAMES_64
#undef RIDGE_NAMES_80

#endif

}  // namespace ridge::cuda
