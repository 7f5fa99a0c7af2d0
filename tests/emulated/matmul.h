// What tests of matmuls need: weights as a GPU has them, rows, and a machine of few multiprocessors.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/float_types.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/matmul/gemm.h"
#include "cuda/repack.h"
#include "formats/format.h"

namespace ridge::cuda {

struct Aligned {                             // what copies of 16 bytes start from
  explicit Aligned(int64_t n_bytes) : n(n_bytes), whole(new std::byte[size_t(n_bytes) + 1024]) {
    at = whole.get() + (1024 - reinterpret_cast<uintptr_t>(whole.get()) % 1024);
    std::memset(at, 0xff, size_t(n_bytes));  // as numbers: NaN
  }
  int64_t n;
  std::unique_ptr<std::byte[]> whole;
  std::byte* at;
};

// A weight as a GPU has it, and its numbers.
struct Packed {
  Packed(RawFormat raw, int64_t rows, int64_t cols, std::mt19937& rng) : units(packed_bytes(raw, rows, cols)), scales(raw.format == FormatId::fp8_e4m3 && !raw.block_scales ? rows * 4 : 0) {
    const int64_t n_codes = row_bytes(raw.format, cols), n_units = (cols + 63) / 64, padded = (n_codes + 15) / 16 * 16, stride = raw.block_scales ? padded + 4 * n_units : n_codes;
    std::vector<std::byte> file(size_t(rows * stride));
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(cols));
    std::vector<float> of_unit(static_cast<size_t>(n_units), 1.0f);
    numbers.resize(size_t(rows * cols));
    for (int64_t r = 0; r < rows; ++r) {
      if (raw.block_scales && r % 128 == 0)
        for (float& s : of_unit) s = 0.5f + float(rng() % 100) / 64;
      for (float& v : x) v = normal(rng);
      std::byte* const row = file.data() + r * stride;
      format(raw.format).encode_row(row, x.data(), cols);
      if (raw.block_scales) std::memcpy(row + padded, of_unit.data(), 4 * of_unit.size());
      float* const to = numbers.data() + r * cols;
      format(raw.format).decode_row(to, row, cols);
      for (int64_t k = 0; k < cols; ++k) to[k] *= 1.5f * of_unit[size_t(k / 64)];
    }
    repack(units.at, file.data(), stride, raw, rows, cols, nullptr);
    weight = {.format = raw.format, .arithmetic = {FormatId::bf16, raw.block_scales ? 128 : 0}, .rows = rows, .cols = cols, .scale = 1.5f, .packed = {units.at, raw.format, rows, cols, 0}};
    if (scales.n == 0) return;
    for (int64_t r = 0; r < rows; ++r) {
      const float scale = reinterpret_cast<float*>(scales.at)[r] = 0.25f + float(r % 7) / 8;
      for (int64_t k = 0; k < cols; ++k) numbers[size_t(r * cols + k)] *= scale;
    }
    weight.row_scales = {scales.at, FormatId::f32, 1, rows, rows * 4};
  }
  Aligned units, scales;
  std::vector<float> numbers;
  Weight weight;
};

struct Rows {
  Rows(int64_t rows, int64_t cols) : memory(rows * cols * 4), tensor{memory.at, FormatId::f32, rows, cols, cols * 4} {}
  float* row(int64_t r) { return reinterpret_cast<float*>(memory.at) + r * tensor.cols; }
  Aligned memory;
  Tensor tensor;
};
inline Rows random_rows(int64_t rows, int64_t cols, std::mt19937& rng) {
  Rows r(rows, cols);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows * cols; ++i) r.row(0)[i] = normal(rng);
  return r;
}
inline double product(const Packed& w, int64_t row, const float* x) {
  double sum = 0;
  for (int64_t k = 0; k < w.weight.cols; ++k) sum += double(w.numbers[size_t(row * w.weight.cols + k)]) * double(bf16_to_f32(f32_to_bf16(x[k])));
  return sum;
}

struct Machine {
  Machine() : sums(kMostChainSums), scratch(1 << 20), activated(1 << 20), scaled(2 * kMostSeveral * kMostScaledCols), squares(4 * kMostSeveral * kMostScaledCols / 16) {
    launch.chain_sums = reinterpret_cast<float4*>(sums.at);
    launch.matmul_scratch = scratch.at, launch.matmul_scratch_bytes = scratch.n;
    launch.activated = activated.at, launch.activated_bytes = activated.n;
    launch.scaled = scaled.at;
    launch.tile_squares = reinterpret_cast<float*>(squares.at);
    launch.n_sms = 3;                        // fewer than tiles: blocks take several in turn
    launch.compute_capability = 90;
    launch.max_shared_bytes = (227 << 10) - kSharedForOthers;
  }
  Aligned sums, scratch, activated, scaled, squares;
  Launch launch{};
};

struct Case { const char* name; RawFormat raw; };
constexpr Case kCases[] = {{"bf16", {FormatId::bf16}}, {"fp8", {FormatId::fp8_e4m3}}, {"fp8 in blocks", {FormatId::fp8_e4m3, true}}, {"nvfp4", {FormatId::nvfp4}},
                           {"mxfp4", {FormatId::mxfp4}}, {"q8_0", {FormatId::q8_0}}, {"q4_0", {FormatId::q4_0}}, {"q4_1", {FormatId::q4_1}}};
inline bool has_scales(const Case& c) { return c.raw.block_scales || c.raw.format == FormatId::q8_0 || c.raw.format == FormatId::q4_0 || c.raw.format == FormatId::q4_1; }

// Rows of an op's first weight by the matmul for many tokens.
inline Rows by_many(const Packed& w, const Tensor& x, Machine& machine, const Tensor& bias = {}, const float* factors = nullptr) {
  machine.launch.gemm_way = {64, false};
  Rows out(x.rows, w.weight.rows);
  Aligned tiles(tiles_bytes(x.rows, x.cols));
  const Matmul op{.out = {out.tensor}, .x = x, .w = {&w.weight}, .bias = {bias}};
  gemm(w.weight, {.part = {part_from(op, 0), {}, {}}, .n = 1, .residual = {}, .factors = factors}, x, tiles.at, false, machine.launch);
  return out;
}
inline void expect_rows(Rows& got, Rows& wanted, const std::string& what) {
  for (int64_t i = 0; i < wanted.tensor.rows * wanted.tensor.cols; ++i) ASSERT_EQ(got.row(0)[i], wanted.row(0)[i]) << what << ", token " << i / wanted.tensor.cols << ", row " << i % wanted.tensor.cols;
}

// Three weights in one op, the first with a bias: run(op) leaves the bits of the matmul for many.
struct Three {
  Three(RawFormat raw, int64_t cols, std::mt19937& rng) : q(raw, 200, cols, rng), k(raw, 48, cols, rng), v(raw, 20, cols, rng), bias(random_rows(1, 200, rng)) {}
  template <class Run>
  void expect_bits_of_many(int n, Machine& machine, std::mt19937& rng, const std::string& what, const Run& run) {
    Rows x = random_rows(n, q.weight.cols, rng), oq(n, 200), ok(n, 48), ov(n, 20);
    run(Matmul{.out = {oq.tensor, ok.tensor, ov.tensor}, .x = x.tensor, .w = {&q.weight, &k.weight, &v.weight}, .bias = {bias.tensor}});
    Rows wq = by_many(q, x.tensor, machine, bias.tensor), wk = by_many(k, x.tensor, machine), wv = by_many(v, x.tensor, machine);
    expect_rows(oq, wq, what + ", q");
    expect_rows(ok, wk, what + ", k");
    expect_rows(ov, wv, what + ", v");
  }
  Packed q, k, v;
  Rows bias;
};

}  // namespace ridge::cuda
