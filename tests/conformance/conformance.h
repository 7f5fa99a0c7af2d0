// What the conformance tests share: random inputs from a seed, tensors to and from a backend, ragged steps with shuffled pages, and comparisons. Every test
// runs the same ops on two backends (or on one in two ways) and compares what comes out: within a tolerance of `ref`, bit for bit among the ways of one
// arithmetic.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/op_reads.h"
#include "cpu/cpu_backend.h"
#include "ref/ref_backend.h"

namespace ridge::conformance {

constexpr Arithmetic kInt8{FormatId::i8, 32}, kInt16{FormatId::i16, 32}, kFloat{FormatId::f32, 32};

using Rng = std::mt19937;

// A row-major matrix of the host.
struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;

  float* row(int64_t r) { return values.data() + r * cols; }
  const float* row(int64_t r) const { return values.data() + r * cols; }
  Matrix slice(int64_t first, int64_t n) const { return {n, cols, {values.begin() + first * cols, values.begin() + (first + n) * cols}}; }
};

inline Matrix random_matrix(Rng& rng, int64_t rows, int64_t cols, float spread = 1.0f) {
  Matrix m{rows, cols, std::vector<float>(static_cast<size_t>(rows * cols))};
  std::normal_distribution<float> normal(0, spread);
  for (float& v : m.values) v = normal(rng);
  return m;
}

inline int pick(Rng& rng, std::initializer_list<int> from) { return *(from.begin() + rng() % from.size()); }
inline int between(Rng& rng, int low, int high) { return low + static_cast<int>(rng() % static_cast<unsigned>(high - low + 1)); }

// To the device, rows 64-byte aligned as a model's workspace has them.
inline Tensor put(Backend& backend, const Matrix& m) {
  const int64_t stride = (m.cols + 15) / 16 * 16;
  std::vector<float> padded(static_cast<size_t>(std::max<int64_t>(m.rows, 1) * stride), 0.0f);
  for (int64_t r = 0; r < m.rows; ++r) std::copy_n(m.row(r), m.cols, padded.data() + r * stride);
  const Tensor all = backend.upload(padded.data(), static_cast<int64_t>(padded.size()));
  return {all.data, FormatId::f32, m.rows, m.cols, stride * 4};
}

inline Matrix get(Backend& backend, const Tensor& t) {
  Matrix m{t.rows, t.cols, std::vector<float>(static_cast<size_t>(t.rows * t.cols))};
  backend.download(m.values.data(), t);
  return m;
}

// A weight in a format, with the memory it lies in.
struct OwnedWeight {
  std::vector<std::byte> bytes, scales{};
  StoredWeight stored;
};
inline std::unique_ptr<OwnedWeight> encode(const Matrix& m, FormatId f, const std::string& name = "weight") {
  auto w = std::make_unique<OwnedWeight>();
  w->bytes.resize(static_cast<size_t>(m.rows * row_bytes(f, m.cols)));
  w->stored = {.name = name, .format = f, .rows = m.rows, .cols = m.cols, .codes = view(w->bytes.data(), f, m.rows, m.cols)};
  for (int64_t r = 0; r < m.rows; ++r) format(f).encode_row(w->stored.codes.row(r), m.row(r), m.cols);
  return w;
}

// Sequences of a step: n_past positions are in KV already, n_rows are computed now.
struct SeqPlan { int n_past = 0, n_rows = 1; };

struct StepOptions {
  int page_size = 64;
  int n_freqs = 0;                           // of one rope table; its rows are filled from `seed`, a different one per sequence
  uint32_t seed = 1;                         // page numbers, token ids
  int n_vocab = 100;
  bool all_logits = false;                   // else the last row of each sequence
};

// A step over sequences whose pages are scattered over a pool just large enough; returns it with the number of pages of the pool.
struct PlannedStep { std::unique_ptr<Step> step; int n_pages = 0; };
inline PlannedStep plan_step(const std::vector<SeqPlan>& seqs, const StepOptions& o) {
  Rng rng(o.seed);
  int n_rows = 0, n_pages = 0;
  for (const SeqPlan& s : seqs) {
    n_rows += s.n_rows;
    n_pages += (s.n_past + s.n_rows + o.page_size - 1) / o.page_size;
  }
  StepLimits limits{.max_tokens = n_rows, .max_seqs = static_cast<int>(seqs.size()), .max_logits = n_rows, .max_pages = n_pages, .n_ropes = o.n_freqs > 0 ? 1 : 0,
                    .n_freqs = o.n_freqs, .max_rope_rows = static_cast<int>(seqs.size())};
  auto step = std::make_unique<Step>(limits);
  step->clear();
  step->set_page_size(o.page_size);
  std::vector<int32_t> pool(static_cast<size_t>(n_pages + 3));
  std::iota(pool.begin(), pool.end(), 0);
  std::shuffle(pool.begin(), pool.end(), rng);
  size_t taken = 0;
  int row = 0;
  for (size_t i = 0; i < seqs.size(); ++i) {
    const int n_context = seqs[i].n_past + seqs[i].n_rows;
    std::vector<int32_t> table;
    for (int p = 0; p < (n_context + o.page_size - 1) / o.page_size; ++p) table.push_back(pool[taken++]);
    StepSeq seq{.slot = static_cast<int32_t>(i), .first_row = row, .n_rows = seqs[i].n_rows, .n_context = n_context, .rope_row = 0, .first_page = {}};
    seq.first_page[0] = step->add_pages(table);
    if (o.n_freqs > 0) {
      seq.rope_row = step->add_rope_row();
      float* freqs = step->rope_freqs(0, seq.rope_row);
      for (int f = 0; f < o.n_freqs; ++f) freqs[f] = std::pow(10000.0f + 500.0f * static_cast<float>(i), -static_cast<float>(f) / static_cast<float>(o.n_freqs));
      freqs[o.n_freqs] = 1.0f + 0.1f * static_cast<float>(i % 3);
    }
    const int index = step->add_seq(seq);
    for (int r = 0; r < seqs[i].n_rows; ++r)
      step->add_token(static_cast<int32_t>(rng() % static_cast<unsigned>(o.n_vocab)), seqs[i].n_past + r, index, o.all_logits || r + 1 == seqs[i].n_rows);
    row += seqs[i].n_rows;
  }
  return {std::move(step), n_pages + 3};
}

// The backends under test: every ISA that this machine runs, with one thread and with three (more than the two cores of a small machine).
struct CpuCase { std::string isa; int n_threads; };
inline std::vector<CpuCase> cpu_cases() {
  std::vector<CpuCase> cases;
  for (const std::string& isa : available_isas())
    for (const int n : {1, 3}) cases.push_back({isa, n});
  return cases;
}
inline std::unique_ptr<Backend> make_cpu(const CpuCase& c, const std::string& force_kernel = "") {
  return make_cpu_backend({.n_threads = c.n_threads, .isa = c.isa, .pin = false, .force_kernel = force_kernel});
}

inline void run_step(Backend& backend, const Step& step, const std::vector<Op>& ops) {
  backend.begin(step);
  for (const Op& op : ops) backend.run(op);
  backend.end();
}

// Each op in a step of its own, but for a norm with the matmul that alone reads it: which of them applies the norm's factor is a backend's choice, and it rounds accordingly.
inline void run_apart(Backend& backend, const Step& step, const std::vector<Op>& ops) {
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto* norm = std::get_if<AddNorm>(&ops[i]);
    const auto* matmul = i + 1 < ops.size() ? std::get_if<Matmul>(&ops[i + 1]) : nullptr;
    const bool with_next = norm && matmul && matmul->x.data == norm->out.data && !is_read_from(ops, i + 2, norm->out);
    if (with_next) run_step(backend, step, {ops[i], ops[i + 1]}), ++i;
    else run_step(backend, step, {ops[i]});
  }
}

// |a - b| <= tolerance * (largest magnitude of b, at least 1).
inline void expect_close(const Matrix& a, const Matrix& b, float tolerance, const std::string& what) {
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  float scale = 1.0f, worst = 0;
  size_t place = 0;
  for (const float v : b.values) scale = std::max(scale, std::fabs(v));
  for (size_t i = 0; i < a.values.size(); ++i) {
    const float difference = std::fabs(a.values[i] - b.values[i]);
    if (!(difference <= worst)) worst = difference, place = i;           // a NaN is worst
    if (std::isnan(difference)) break;
  }
  EXPECT_LE(worst, tolerance * scale) << what << ": row " << place / static_cast<size_t>(a.cols) << " column " << place % static_cast<size_t>(a.cols) << ": "
                                      << a.values[place] << " vs " << b.values[place];
}

// Bit for bit (zeros of two signs are one number).
inline void expect_same(const Matrix& a, const Matrix& b, const std::string& what) {
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (std::bit_cast<uint32_t>(a.values[i]) == std::bit_cast<uint32_t>(b.values[i]) || (a.values[i] == 0 && b.values[i] == 0)) continue;
    FAIL() << what << ": row " << i / static_cast<size_t>(a.cols) << " column " << i % static_cast<size_t>(a.cols) << ": " << a.values[i] << " vs " << b.values[i];
  }
}

}  // namespace ridge::conformance
