// Prefill on CUDA at the shapes of Qwen3-8B: matmuls of many tokens in TFLOP/s, with the largest error against exact sums of the rounded numbers and the number of
// results that differ from those of the kernel for few tokens (0: one weight has one arithmetic); then attention of a whole prompt, and of one row each of many sequences.
//   bench_cuda_prefill [tokens...]
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "base/float_types.h"
#include "cuda/cuda_backend.h"
#include "formats/format.h"

namespace ridge {
namespace {

struct Shape { const char* name; int64_t rows, cols; };
constexpr Shape kShapes[] = {{"q or o", 4096, 4096}, {"k or v", 1024, 4096}, {"gate", 12288, 4096}, {"down", 4096, 12288}};

std::vector<float> gaussian(size_t n, float spread, uint32_t seed) {
  // A strip of numbers, repeated with an odd period: drawing millions is not what is measured here.
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> strip(std::min<size_t>(n, 1000003)), out(n);
  for (float& v : strip) v = normal(rng);
  for (size_t i = 0; i < n; ++i) out[i] = strip[i % strip.size()];
  return out;
}

Step plain_step(int n_tokens) {
  Step step({.max_tokens = n_tokens, .max_seqs = 1, .max_logits = 1, .max_pages = 1});
  step.clear();
  step.add_seq({.slot = 0, .first_row = 0, .n_rows = n_tokens, .n_context = n_tokens, .rope_row = 0, .first_page = {}});
  for (int t = 0; t < n_tokens; ++t) step.add_token(0, t, 0, false);
  return step;
}

void run_once(Backend& backend, const Step& step, const std::vector<Op>& ops) {
  backend.begin(step);
  for (const Op& op : ops) backend.run(op);
  backend.end();
}

double best_of(Backend& backend, const Step& step, const std::vector<Op>& ops, int n_repeats) {
  double best = 1e9;
  for (int repeat = 0; repeat < n_repeats + 2; ++repeat) {                   // the first runs plainly, the second captures a graph
    const auto start = std::chrono::steady_clock::now();
    run_once(backend, step, ops);
    if (repeat >= 2) best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void matmuls(const std::vector<int>& token_counts) {
  std::printf("\n| format | weight | tokens | us | TFLOP/s | largest error / rms | differ from few |\n|---|---|---|---|---|---|---|\n");
  for (const FormatId id : {FormatId::bf16, FormatId::fp8_e4m3, FormatId::nvfp4, FormatId::q8_0, FormatId::q4_0})
    for (const Shape& shape : kShapes) {
      auto backend = make_cuda_backend({}), plain = make_cuda_backend({.graphs = false});
      const std::vector<float> numbers = gaussian(size_t(shape.rows * shape.cols), 0.02f, 1);
      std::vector<std::byte> codes(size_t(shape.rows * row_bytes(id, shape.cols)));
      for (int64_t r = 0; r < shape.rows; ++r)
        if (r < 64) format(id).encode_row(codes.data() + r * row_bytes(id, shape.cols), numbers.data() + r * shape.cols, shape.cols);
        else std::copy_n(codes.data() + (r * 7 + r / 64) % 64 * row_bytes(id, shape.cols), row_bytes(id, shape.cols), codes.data() + r * row_bytes(id, shape.cols));
      const StoredWeight stored{.name = shape.name, .format = id, .rows = shape.rows, .cols = shape.cols, .codes = view(codes.data(), id, shape.rows, shape.cols)};
      constexpr int kCopies = 4;                                             // of the weight, in turn
      std::vector<Weight> weights;
      for (int i = 0; i < kCopies; ++i) weights.push_back(backend->prepare(stored, {}));
      for (const int n_tokens : token_counts) {
        const std::vector<float> values = gaussian(size_t(n_tokens) * shape.cols, 1.0f, 2);
        Tensor input = backend->upload(values.data(), int64_t(values.size()));
        input = {input.data, FormatId::f32, n_tokens, shape.cols, shape.cols * 4};
        const Tensor out = backend->allocate_f32(n_tokens, shape.rows), few = backend->allocate_f32(8, shape.rows);
        const Step step = plain_step(n_tokens);
        std::vector<Op> ops;
        for (const Weight& w : weights) ops.push_back(Matmul{.out = {out}, .x = input, .w = {&w}});
        const double seconds = best_of(*backend, step, ops, 4) / kCopies;
        std::vector<float> got(size_t(n_tokens) * shape.rows), got_few(size_t(8) * shape.rows), row(shape.cols);
        backend->download(got.data(), out);
        double worst = 0, squares = 0;
        int64_t n_checked = 0, n_differ = 0;
        for (const int n : {8, 7, 6, 5}) {                                     // tokens spread over the batch
          const int first = (n_tokens - n) * (8 - n) / 3;
          const Tensor some{input.data + first * input.stride, FormatId::f32, n, shape.cols, input.stride}, out_some{few.data, FormatId::f32, n, shape.rows, few.stride};
          run_once(*plain, plain_step(n), {Matmul{.out = {out_some}, .x = some, .w = {&weights[0]}}});
          backend->download(got_few.data(), out_some);
          for (size_t i = 0; i < size_t(n * shape.rows); ++i) n_differ += std::bit_cast<uint32_t>(got_few[i]) != std::bit_cast<uint32_t>(got[size_t(first) * shape.rows + i]);
        }
        for (int64_t r = 0; r < shape.rows; r += std::max<int64_t>(1, shape.rows / 23)) {
          decode_stored_row(row.data(), stored, r);
          for (int t = 0; t < n_tokens; t += std::max(1, n_tokens / 7)) {
            double sum = 0;
            for (int64_t k = 0; k < shape.cols; ++k) sum += double(row[k]) * bf16_to_f32(f32_to_bf16(values[size_t(t) * shape.cols + k]));
            const double difference = std::fabs(sum - got[size_t(t) * shape.rows + r]);
            if (!(difference <= worst)) worst = difference;
            squares += sum * sum;
            ++n_checked;
          }
        }
        std::printf("| %s | %s | %d | %.1f | %.0f | %.1e | %ld |\n", std::string(format(id).name).c_str(), shape.name, n_tokens, seconds * 1e6,
                    2.0 * shape.rows * shape.cols * n_tokens / seconds / 1e12, worst / std::sqrt(squares / n_checked), long(n_differ));
        std::fflush(stdout);
      }
    }
}

// Sequences of n_context positions, the last n_rows of each in the step.
Step paged_step(int n_seqs, int n_context, int n_rows, int page_size) {
  const int n_pages = (n_context + page_size - 1) / page_size;
  Step step({.max_tokens = n_seqs * n_rows, .max_seqs = n_seqs, .max_logits = 1, .max_pages = n_seqs * n_pages});
  step.clear();
  step.set_page_size(page_size);
  std::vector<int32_t> pool(size_t(n_seqs) * n_pages);
  std::iota(pool.begin(), pool.end(), 0);
  std::shuffle(pool.begin(), pool.end(), std::mt19937(3));
  for (int s = 0; s < n_seqs; ++s) {
    StepSeq seq{.slot = s, .first_row = s * n_rows, .n_rows = n_rows, .n_context = n_context, .rope_row = 0, .first_page = {}};
    seq.first_page[0] = step.add_pages({pool.data() + size_t(s) * n_pages, size_t(n_pages)});
    step.add_seq(seq);
    for (int r = 0; r < n_rows; ++r) step.add_token(0, n_context - n_rows + r, s, false);
  }
  return step;
}

void attention(double bandwidth) {
  struct Case { int n_seqs, n_context, n_rows, n_heads, n_kv_heads, head_dim; FormatId kv; };
  constexpr int kPage = 64;
  std::printf("\n| attention | heads, dim | KV | us | TFLOP/s | TB/s | share of read bandwidth |\n|---|---|---|---|---|---|---|\n");
  for (const Case& c : {Case{1, 8192, 8192, 32, 8, 128, FormatId::bf16}, Case{1, 8192, 8192, 32, 8, 128, FormatId::f16}, Case{1, 2048, 2048, 32, 8, 128, FormatId::bf16},
                        Case{16, 512, 512, 32, 8, 128, FormatId::bf16}, Case{1, 8192, 8192, 32, 8, 64, FormatId::bf16}, Case{32, 8192, 1, 32, 8, 128, FormatId::bf16},
                        Case{32, 8192, 1, 32, 8, 128, FormatId::f16}, Case{32, 512, 1, 32, 8, 128, FormatId::bf16}, Case{1, 512, 1, 32, 8, 128, FormatId::f16},
                        Case{1, 32768, 1, 32, 8, 128, FormatId::f16}, Case{1, 8192, 8192, 32, 8, 128, FormatId::fp8_e4m3}, Case{32, 8192, 1, 32, 8, 128, FormatId::fp8_e4m3},
                        Case{32, 512, 1, 32, 8, 128, FormatId::fp8_e4m3}, Case{1, 512, 1, 32, 8, 128, FormatId::fp8_e4m3}, Case{1, 32768, 1, 32, 8, 128, FormatId::fp8_e4m3}}) {
    auto backend = make_cuda_backend({});
    const int n_rows = c.n_seqs * c.n_rows, n_layers = c.n_rows == 1 ? 4 : 1;   // layers with KV of their own, in turn
    const KvPlane plane{c.n_kv_heads, c.head_dim, c.kv};
    const int64_t plane_bytes = kPage * entry_bytes(plane), n_pages = int64_t{c.n_seqs} * ((c.n_context + kPage - 1) / kPage);
    const auto tensor = [&](int64_t rows, int64_t cols, uint32_t seed) {
      const std::vector<float> values = gaussian(size_t(rows * cols), 1.0f, seed);
      return Tensor{backend->upload(values.data(), int64_t(values.size())).data, FormatId::f32, rows, cols, cols * 4};
    };
    const Step fill = paged_step(c.n_seqs, c.n_context, c.n_context, kPage), step = paged_step(c.n_seqs, c.n_context, c.n_rows, kPage);
    const int64_t n_stored = int64_t{c.n_seqs} * c.n_context;
    const Tensor k = tensor(n_stored, c.n_kv_heads * c.head_dim, 5), v = tensor(n_stored, c.n_kv_heads * c.head_dim, 6), q = tensor(n_rows, c.n_heads * c.head_dim, 7);
    const Tensor no_q{q.data, FormatId::f32, n_stored, 0, 0};
    std::vector<Op> ops;
    const Tensor out = backend->allocate_f32(n_rows, c.n_heads * c.head_dim);
    for (int layer = 0; layer < n_layers; ++layer) {
      const KvRef kv{.base = backend->allocate(n_pages * 2 * plane_bytes), .page_bytes = 2 * plane_bytes, .offsets = {0, plane_bytes, 0}, .planes = {plane, plane}, .page_size = kPage};
      run_once(*backend, fill, {RopeStore{.q = no_q, .k = k, .v = v, .n_heads = 0, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .v_dim = c.head_dim, .kv = kv}});
      ops.push_back(PagedAttention{.out = out, .q = q, .kv = kv, .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .v_dim = c.head_dim,
                                   .scale = 1 / std::sqrt(float(c.head_dim))});
    }
    const double seconds = best_of(*backend, step, ops, 5) / n_layers;
    const double past = c.n_context - c.n_rows, pairs = c.n_seqs * c.n_rows * (past + (c.n_rows + 1) / 2.0), bytes = double(n_stored) * 2 * double(entry_bytes(plane));
    std::printf("| %d x %d rows at context %d | %d/%d, %d | %s | %.1f | %.0f | %.2f | %.2f |\n", c.n_seqs, c.n_rows, c.n_context, c.n_heads, c.n_kv_heads, c.head_dim,
                std::string(format(c.kv).name).c_str(), seconds * 1e6, 4.0 * pairs * c.n_heads * c.head_dim / seconds / 1e12, bytes / seconds / 1e12, bytes / seconds / bandwidth);
    std::fflush(stdout);
  }
}

void run(int argc, char** argv) {
  std::vector<int> token_counts;
  for (int i = 1; i < argc; ++i) token_counts.push_back(std::atoi(argv[i]));
  if (token_counts.empty()) token_counts = {128, 512, 2048, 8192};
  const double bandwidth = measure_cuda_read_bandwidth();
  std::printf("%s; read bandwidth %.2f TB/s\n", cuda_device_description().c_str(), bandwidth / 1e12);
  attention(bandwidth);
  matmuls(token_counts);
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  if (const std::string reason = ridge::cuda_unavailable_reason(); !reason.empty()) {
    std::fprintf(stderr, "bench_cuda_prefill: %s\n", reason.c_str());
    return 1;
  }
  ridge::run(argc, argv);
}
