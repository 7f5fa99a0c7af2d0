// What choosing a token takes, in every way that most ask for: the host's sampler for a row of logits, one thread; and, where there is a GPU, its kernels for a step of 1 and of 32 rows, as what they
// add to a step that ends with the logits of a matmul over few inputs and takes the largest.
//   bench_sampling [tokens of the vocabulary]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "cuda/cuda_backend.h"
#include "formats/format.h"
#include "sample/sampler.h"

namespace ridge {
namespace {

constexpr int kInputs = 64;

struct Way { const char* name; SamplingParams params; };
const std::vector<Way> kWays = {{"greedy", {.temperature = 0}},
                                {"temperature 1", {.temperature = 1}},
                                {"temperature 0.7, min-p 0.05", {.temperature = 0.7f, .min_p = 0.05f}},
                                {"temperature 0.7, top-p 0.9", {.temperature = 0.7f, .top_p = 0.9f}},
                                {"temperature 0.7, top-k 20, top-p 0.95", {.temperature = 0.7f, .top_k = 20, .top_p = 0.95f}},
                                {"greedy, logprobs of 5", {.temperature = 0, .n_logprobs = 5}}};

double seconds_since(std::chrono::steady_clock::time_point start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

// Logits as steep as a model's: a few hold most of the weight, all the others little.
std::vector<float> some_logits(int n_vocab) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(static_cast<size_t>(n_vocab));
  for (float& x : logits) x = normal(random);
  for (int i = 0; i < 40; ++i) logits[random() % logits.size()] += 14.0f - 0.2f * float(i);
  return logits;
}

double host_seconds(const std::vector<float>& logits, const SamplingParams& params) {
  Sampler sampler(int(logits.size()));
  double best = 1e9;
  for (uint64_t i = 0; i < 50; ++i) {
    std::vector<float> row = logits;
    const auto start = std::chrono::steady_clock::now();
    sampler.sample(row, {.params = params, .seed = 1, .counter = i});
    best = std::min(best, seconds_since(start));
  }
  return best;
}

class Device {
 public:
  explicit Device(int n_vocab) : backend_(make_cuda_backend({})) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0, 0.5f);
    std::vector<float> x(kInputs);
    codes_.resize(size_t(n_vocab) * size_t(row_bytes(FormatId::bf16, kInputs)));
    for (int r = 0; r < n_vocab; ++r) {
      for (float& v : x) v = normal(random);
      format(FormatId::bf16).encode_row(codes_.data() + r * row_bytes(FormatId::bf16, kInputs), x.data(), kInputs);
    }
    const StoredWeight stored{.name = "head", .format = FormatId::bf16, .rows = n_vocab, .cols = kInputs, .codes = view(codes_.data(), FormatId::bf16, n_vocab, kInputs)};
    head_ = backend_->prepare(stored, {});
    table_ = backend_->prepare_table(stored);
    x_ = backend_->allocate_f32(kRows, kInputs), logits_ = backend_->allocate_f32(kRows, n_vocab);
    backend_->watch_peaks(logits_);
  }

  double seconds(int n_rows, const SamplingParams& p) {
    Step step({.max_tokens = kRows, .max_seqs = 1, .max_logits = kRows, .max_pages = 1});
    step.clear();
    step.set_page_size(64);
    step.add_seq({.slot = 0, .first_row = 0, .n_rows = n_rows, .n_context = n_rows, .rope_row = 0, .first_page = {}});
    for (int r = 0; r < n_rows; ++r) step.add_token(r, r, 0, true);
    double best = 1e9;
    for (uint64_t i = 0; i < 400; ++i) {
      for (int r = 0; r < n_rows; ++r) {
        Draw draw{.n_logprobs = p.n_logprobs};
        if (!p.greedy()) draw.u = uniform(uint64_t(r), i), draw.sharpness = 1.0 / p.temperature, draw.top_p = p.top_p, draw.min_p = p.min_p, draw.top_k = p.top_k;
        step.set_draw(r, draw);
      }
      const auto start = std::chrono::steady_clock::now();
      backend_->begin(step);
      backend_->run(Embed{.out = x_.slice_rows(0, n_rows), .table = &table_});
      backend_->run(Matmul{.out = {logits_.slice_rows(0, n_rows)}, .x = x_.slice_rows(0, n_rows), .w = {&head_}});
      backend_->end();
      if (i > 100) best = std::min(best, seconds_since(start));
    }
    return best;
  }

 private:
  static constexpr int kRows = 32;
  std::unique_ptr<Backend> backend_;
  std::vector<std::byte> codes_;
  Weight head_, table_;
  Tensor x_, logits_;
};

void run(int n_vocab) {
  const std::vector<float> logits = some_logits(n_vocab);
  const std::string missing = cuda_unavailable_reason();
  std::unique_ptr<Device> device = missing.empty() ? std::make_unique<Device>(n_vocab) : nullptr;
  std::printf("%d tokens\n%-40s%14s%16s%16s\n", n_vocab, "", "host, us/row", "GPU, 1 row, us", "32 rows, us");
  double plain[2] = {};
  for (const Way& way : kWays) {
    std::printf("%-40s%14.1f", way.name, 1e6 * host_seconds(logits, way.params));
    for (int which = 0; which < 2 && device; ++which) {
      const double seconds = device->seconds(which ? 32 : 1, way.params);
      if (&way == &kWays.front()) plain[which] = seconds;
      std::printf("%16.1f", 1e6 * (seconds - plain[which]));
    }
    std::printf("%s\n", device ? "" : "               -               -");
  }
  if (device) std::printf("On the GPU: more than the greedy step, which takes %.1f and %.1f us.\n", 1e6 * plain[0], 1e6 * plain[1]);
  else std::printf("No GPU was measured: %s\n", missing.c_str());
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  const int n_vocab = argc > 1 ? std::atoi(argv[1]) : 151936;
  if (n_vocab < 2 || n_vocab > 4'000'000) {
    std::fprintf(stderr, "bench_sampling: a vocabulary has 2 to 4000000 tokens\n");
    return 1;
  }
  ridge::run(n_vocab);
}
