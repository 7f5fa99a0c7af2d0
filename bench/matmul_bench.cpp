// Speed of the Matmul candidates for the linear shapes of a Qwen3-0.6B layer, with weights that come from memory: as many layers as fill --set-mb (far more
// than the caches hold), each Matmul run once per sweep. Prints time per layer, GB/s, the share of the read bandwidth measured in the same run, and GOP/s,
// and compares the results of all ISAs and candidates bit for bit.
//
//   bench_matmul --formats q8_0,q4_0 --threads 1,2 --tokens 1,8,512 --isa avx512 --kernel few
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <ctime>
#include <map>
#include <random>

#include "clock.h"
#include "base/error.h"
#include "cpu/cpu_backend.h"

using namespace ridge;

namespace {

struct Flags {
  std::vector<std::string> formats = {"q8_0", "q4_0", "nvfp4", "bf16"}, isas, kernels;
  std::vector<int> threads = {1, 2}, tokens = {1, 2, 4, 8, 32, 512};
  int set_mb = 512, repeats = 5, k_block = 0;
  std::string activations = "i8";
  bool head = false;
};

struct Shape { int64_t rows, cols; };
constexpr Shape kQ{2048, 1024}, kKv{1024, 1024}, kO{1024, 2048}, kUp{3072, 1024}, kDown{1024, 3072}, kHead{151936, 1024};

BenchClock timer;

struct Stored {
  std::vector<std::byte> bytes;
  StoredWeight weight;
};

// Random codes with sane scales: 64 rows encoded, then repeated.
Stored random_weight(Shape shape, FormatId f) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal(0, 0.05f);
  const int64_t row = row_bytes(f, shape.cols), distinct = std::min<int64_t>(64, shape.rows);
  Stored s;
  s.bytes.resize(static_cast<size_t>(row * shape.rows));
  std::vector<float> x(static_cast<size_t>(shape.cols));
  for (int64_t r = 0; r < shape.rows; ++r) {
    std::byte* out = s.bytes.data() + r * row;
    if (r >= distinct) {
      std::memcpy(out, out - distinct * row, static_cast<size_t>(row));
      continue;
    }
    for (float& v : x) v = normal(rng);
    format(f).encode_row(out, x.data(), shape.cols);
  }
  s.weight = {.name = "weight", .format = f, .rows = shape.rows, .cols = shape.cols, .codes = view(s.bytes.data(), f, shape.rows, shape.cols)};
  return s;
}

struct Layer { Weight q, k, v, o, gate, up, down; };

struct Case {
  std::string isa, kernel;
  int n_threads;
  FormatId format;
};

void measure(const Case& c, const Flags& flags, double bandwidth, std::map<std::string, std::vector<float>>& reference) {
  const auto backend = make_cpu_backend({.n_threads = c.n_threads, .isa = c.isa, .force_kernel = c.kernel});
  const Arithmetic arithmetic{flags.activations == "f32" ? FormatId::f32 : FormatId::i8, flags.k_block};
  const Stored q = random_weight(kQ, c.format), kv = random_weight(kKv, c.format), o = random_weight(kO, c.format), up = random_weight(kUp, c.format),
               down = random_weight(kDown, c.format);
  std::vector<std::unique_ptr<Layer>> layers;
  Weight head;
  int64_t bytes = 0, source_bytes = 0;
  const double begin = timer.seconds();
  const auto prepare = [&](const Stored& s) {
    Weight w = backend->prepare(s.weight, arithmetic);
    bytes += w.bytes;
    source_bytes += static_cast<int64_t>(s.bytes.size());
    return w;
  };
  if (flags.head) {
    head = prepare(random_weight(kHead, c.format));
  } else {
    while (bytes < int64_t{flags.set_mb} << 20)
      layers.push_back(std::make_unique<Layer>(Layer{prepare(q), prepare(kv), prepare(kv), prepare(o), prepare(up), prepare(up), prepare(down)}));
  }
  const double pack_gbs = static_cast<double>(source_bytes) / (timer.seconds() - begin) * 1e-9;
  const int64_t most = *std::max_element(flags.tokens.begin(), flags.tokens.end());

  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, 1);
  const auto random_rows = [&](int64_t cols) {
    const Tensor t = backend->allocate_f32(most, cols);
    for (int64_t r = 0; r < most; ++r)
      for (int64_t k = 0; k < cols; ++k) t.f32(r)[k] = normal(rng);
    return t;
  };
  const Tensor x1 = random_rows(1024), x2 = random_rows(2048), x3 = random_rows(3072);
  const Tensor y1 = backend->allocate_f32(most, 2048), y2 = backend->allocate_f32(most, 3072), y3 = backend->allocate_f32(most, 3072), y4 = backend->allocate_f32(most, 1024),
               y5 = backend->allocate_f32(most, 1024), y6 = backend->allocate_f32(most, 1024), y7 = backend->allocate_f32(most, 1024);
  const Tensor logits = flags.head ? backend->allocate_f32(most, kHead.rows) : Tensor{};

  for (const int n : flags.tokens) {
    Step step(StepLimits{.max_tokens = n, .max_seqs = 1, .max_logits = 1, .max_pages = 1});
    step.clear();
    const auto cut = [&](Tensor t) { return t.slice_rows(0, n); };
    // Many tokens are bound by arithmetic: one sweep over a few layers is enough.
    const size_t n_layers = std::min(layers.size(), n >= 64 ? size_t{2} : layers.size());
    const auto sweep = [&] {
      backend->begin(step);
      if (flags.head) backend->run(Matmul{.out = {cut(logits)}, .x = cut(x1), .w = {&head}});
      for (size_t i = 0; i < n_layers; ++i) {
        const Layer& l = *layers[i];
        backend->run(Matmul{.out = {cut(y1), cut(y4), cut(y5)}, .x = cut(x1), .w = {&l.q, &l.k, &l.v}});
        backend->run(Matmul{.out = {cut(y6)}, .x = cut(x2), .w = {&l.o}});
        backend->run(Matmul{.out = {cut(y2), cut(y3)}, .x = cut(x1), .w = {&l.gate, &l.up}});
        backend->run(Matmul{.out = {cut(y7)}, .x = cut(x3), .w = {&l.down}});
      }
      backend->end();
    };
    sweep();
    double best = 1e9;
    for (int r = 0; r < (n >= 64 ? std::min(3, flags.repeats) : flags.repeats); ++r) {
      const double t = timer.seconds();
      sweep();
      best = std::min(best, timer.seconds() - t);
    }
    const double swept = flags.head ? double(head.bytes) : double(bytes) / double(layers.size()) * double(n_layers);
    const double n_weights = flags.head ? double(kHead.rows * kHead.cols) : double(n_layers) * double(kQ.rows * kQ.cols + 2 * kKv.rows * kKv.cols + kO.rows * kO.cols + 3 * kUp.rows * kUp.cols);
    // Row 0 is the same token for every count, so every case of a format must have these bits.
    const Tensor& shown = flags.head ? logits : y7;
    std::vector<float> row(shown.f32(0), shown.f32(0) + shown.cols);
    const auto [it, fresh] = reference.try_emplace(std::string(format(c.format).name) + flags.activations, row);
    const bool same = std::memcmp(it->second.data(), row.data(), row.size() * 4) == 0;
    fmt::print("{:8} {:6} {:8} {:2} threads {:4} tokens {:10.1f} us {:7.2f} GB/s {:5.2f} of read bandwidth {:8.1f} GOP/s   pack {:.2f} GB/s{}\n", c.isa, c.kernel,
               format(c.format).name, c.n_threads, n, best * 1e6 / (flags.head ? 1.0 : double(n_layers)), swept / best * 1e-9, swept / best / bandwidth,
               2e-9 * n_weights * n / best, pack_gbs, fresh ? "" : same ? "   bits agree" : "   BITS DIFFER");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"Speed of the CPU's Matmul kernels"};
  app.add_option("--formats", flags.formats)->delimiter(',');
  app.add_option("--isa", flags.isas)->delimiter(',');
  app.add_option("--kernel", flags.kernels, "candidates to force; \"auto\": the list's order")->delimiter(',');
  app.add_option("--threads", flags.threads)->delimiter(',');
  app.add_option("--tokens", flags.tokens)->delimiter(',');
  app.add_option("--set-mb", flags.set_mb);
  app.add_option("--repeats", flags.repeats);
  app.add_option("--activations", flags.activations, "i8 or f32");
  app.add_option("--k-block", flags.k_block, "inputs that share a sum: 32, 64 (where the format can), or 0: as the machine likes it");
  app.add_flag("--head", flags.head, "the 151936 x 1024 head instead of layers");
  app.add_flag("--cpu-time", timer.cpu_time, "one thread on a busy machine: count the time it ran");
  CLI11_PARSE(app, argc, argv);
  if (flags.isas.empty()) flags.isas = {available_isas().front()};
  if (flags.kernels.empty()) flags.kernels = {"auto"};
  try {
    std::map<std::string, std::vector<float>> reference;
    for (const int n : flags.threads) {
      const double bandwidth = timer.cpu_time ? timer.read_bandwidth() : measure_read_bandwidth(n);
      fmt::print("read bandwidth, {} threads: {:.1f} GB/s\n", n, bandwidth * 1e-9);
      for (const std::string& name : flags.formats) {
        const auto f = find_format(name);
        if (!f) fail("--formats: there is no format '{}'", name);
        for (const std::string& isa : flags.isas)
          for (const std::string& kernel : flags.kernels) measure({isa, kernel == "auto" ? "" : kernel, n, *f}, flags, bandwidth, reference);
      }
    }
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}
