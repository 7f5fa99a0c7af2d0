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

double best_of(Backend& backend, const Step& step, const std::vector<Op>& ops, int n_repeats) {
  double best = 1e9;
  for (int repeat = 0; repeat < n_repeats + 2; ++repeat) {                   // the first runs plainly, the second captures a graph
    const auto start = std::chrono::steady_clock::now();
    backend.begin(step);
    for (const Op& op : ops) backend.run(op);
    backend.end();
    if (repeat >= 2) best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void matmuls(const std::vector<int>& token_counts) {
  std::printf("| format | weight | tokens | us | TFLOP/s | largest error / rms | differ from few |\n|---|---|---|---|---|---|---|\n");
  for (const FormatId id : {FormatId::bf16, FormatId::nvfp4})
    for (const Shape& shape : kShapes) {
      auto backend = make_cuda_backend({});
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
        const Step step = plain_step(n_tokens), few_step = plain_step(8);
        std::vector<Op> ops;
        for (const Weight& w : weights) ops.push_back(Matmul{.out = {out}, .x = input, .w = {&w}});
        const double seconds = best_of(*backend, step, ops, 4) / kCopies;
        std::vector<float> got(size_t(n_tokens) * shape.rows), got_few(size_t(8) * shape.rows), row(shape.cols);
        backend->download(got.data(), out);
        double worst = 0, squares = 0;
        int64_t n_checked = 0, n_differ = 0;
        for (const int first : {0, n_tokens / 2 - 3, n_tokens - 8}) {
          const Tensor some{input.data + first * input.stride, FormatId::f32, 8, shape.cols, input.stride};
          best_of(*backend, few_step, {Matmul{.out = {few}, .x = some, .w = {&weights[0]}}}, 0);
          backend->download(got_few.data(), few);
          for (size_t i = 0; i < got_few.size(); ++i) n_differ += std::bit_cast<uint32_t>(got_few[i]) != std::bit_cast<uint32_t>(got[size_t(first) * shape.rows + i]);
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

void run(int argc, char** argv) {
  std::vector<int> token_counts;
  for (int i = 1; i < argc; ++i) token_counts.push_back(std::atoi(argv[i]));
  if (token_counts.empty()) token_counts = {128, 512, 2048, 8192};
  std::printf("%s; read bandwidth %.2f TB/s\n", cuda_device_description().c_str(), measure_cuda_read_bandwidth() / 1e12);
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
