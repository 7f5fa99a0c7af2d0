// The CUDA matmuls at the shapes of a real model: bandwidth and arithmetic rate against the limits of the same run, and the error against a plain computation of
// the same rounded numbers. Weights rotate through more memory than the cache holds.
//   bench_cuda [tokens...] [formats...] [weights...]      names leave out the others
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "cuda/cuda_backend.h"
#include "formats/format.h"

namespace ridge {
namespace {

struct Shape { const char* name; int64_t rows, cols; };
constexpr Shape kQwen3_8b[] = {{"q", 4096, 4096}, {"k or v", 1024, 4096}, {"o", 4096, 4096}, {"gate", 12288, 4096}, {"down", 4096, 12288}, {"head", 151936, 4096}};

std::vector<std::byte> random_codes(FormatId id, int64_t rows, int64_t cols, std::mt19937& rng) {
  // One encoded strip of rows, repeated: encoding gigabytes is not what is measured here.
  std::normal_distribution<float> normal(0.0f, 0.02f);
  const int64_t strip = std::min<int64_t>(rows, 64), bytes = row_bytes(id, cols);
  std::vector<std::byte> out(rows * bytes);
  std::vector<float> x(cols);
  for (int64_t r = 0; r < strip; ++r) {
    for (float& v : x) v = normal(rng);
    format(id).encode_row(out.data() + r * bytes, x.data(), cols);
  }
  for (int64_t r = strip; r < rows; ++r) std::copy_n(out.data() + r % strip * bytes, bytes, out.data() + r * bytes);
  return out;
}

void run(int argc, char** argv) {
  std::vector<int> token_counts;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    if (const int n = std::atoi(argv[i]); n > 0) token_counts.push_back(n);
    else names.push_back(argv[i]);
  }
  const auto wanted = [&](const std::string& name, auto&& others) {
    const auto named = [&](const auto& other) { return std::find(names.begin(), names.end(), other) != names.end(); };
    return named(name) || std::none_of(std::begin(others), std::end(others), named);
  };
  const std::vector<FormatId> formats = {FormatId::bf16, FormatId::fp8_e4m3, FormatId::nvfp4, FormatId::mxfp4, FormatId::q8_0, FormatId::q4_0, FormatId::q4_1};
  std::vector<std::string> format_names, shape_names;
  for (const FormatId id : formats) format_names.emplace_back(format(id).name);
  for (const Shape& shape : kQwen3_8b) shape_names.emplace_back(shape.name);
  if (token_counts.empty()) token_counts = {1, 8, 32, 64, 512};
  const double bandwidth = measure_cuda_read_bandwidth();
  std::printf("%s; read bandwidth %.2f TB/s\n", cuda_device_description().c_str(), bandwidth / 1e12);
  std::printf("| format | weight | tokens | us | TB/s | share of read bandwidth | TFLOP/s | largest error / rms |\n|---|---|---|---|---|---|---|---|\n");
  for (const FormatId id : formats) {
    if (!wanted(std::string(format(id).name), format_names)) continue;
    std::mt19937 rng(1);
    for (const Shape& shape : kQwen3_8b) {
      if (!wanted(shape.name, shape_names)) continue;
      auto backend = make_cuda_backend({});
      std::vector<std::byte> codes = random_codes(id, shape.rows, shape.cols, rng);
      const StoredWeight stored{.name = shape.name, .format = id, .rows = shape.rows, .cols = shape.cols, .codes = view(codes.data(), id, shape.rows, shape.cols)};
      std::vector<Weight> weights;
      const int64_t bytes = row_bytes(id, shape.cols) * shape.rows;
      const int n_weights = int(std::clamp<int64_t>((int64_t{400} << 20) / bytes + 1, 2, 64));
      for (int i = 0; i < n_weights; ++i) weights.push_back(backend->prepare(stored, {}));
      for (const int n_tokens : token_counts) {
        std::vector<float> values(size_t(n_tokens) * shape.cols);
        std::normal_distribution<float> normal(0.0f, 1.0f);
        for (float& v : values) v = normal(rng);
        Tensor input = backend->upload(values.data(), int64_t(values.size()));
        input = {input.data, FormatId::f32, n_tokens, shape.cols, shape.cols * 4};
        const Tensor out = backend->allocate_f32(n_tokens, shape.rows);
        Step step({.max_tokens = n_tokens, .max_seqs = 1, .max_logits = 1, .max_pages = 1});
        step.clear();
        for (int t = 0; t < n_tokens; ++t) step.add_token(0, t, 0, false);
        double best = 1e9;
        for (int repeat = 0; repeat < 6; ++repeat) {
          const auto start = std::chrono::steady_clock::now();
          backend->begin(step);
          for (const Weight& w : weights) backend->run(Matmul{.out = {out}, .x = input, .w = {&w}});
          backend->end();
          if (repeat >= 2) best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / n_weights);
        }
        std::vector<float> got(size_t(n_tokens) * shape.rows), row(shape.cols);
        backend->download(got.data(), out);
        double worst = 0, squares = 0;
        int n_checked = 0;
        for (int64_t r = 0; r < shape.rows; r += std::max<int64_t>(1, shape.rows / 97)) {
          decode_stored_row(row.data(), stored, r);
          for (int t = 0; t < n_tokens; t += std::max(1, n_tokens / 5)) {
            double sum = 0;
            for (int64_t k = 0; k < shape.cols; ++k) sum += double(row[k]) * bf16_to_f32(f32_to_bf16(values[size_t(t) * shape.cols + k]));
            worst = std::max(worst, std::fabs(sum - got[size_t(t) * shape.rows + r]));
            squares += sum * sum;
            ++n_checked;
          }
        }
        std::printf("| %s | %s | %d | %.1f | %.2f | %.2f | %.0f | %.1e |\n", std::string(format(id).name).c_str(), shape.name, n_tokens, best * 1e6, bytes / best / 1e12, bytes / best / bandwidth,
                    2.0 * shape.rows * shape.cols * n_tokens / best / 1e12, worst / std::sqrt(squares / n_checked));
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  if (const std::string reason = ridge::cuda_unavailable_reason(); !reason.empty()) {
    std::fprintf(stderr, "bench_cuda: %s\n", reason.c_str());
    return 1;
  }
  ridge::run(argc, argv);
}
