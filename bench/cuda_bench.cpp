// The CUDA matmuls at the shapes of a real model: bandwidth and arithmetic rate against the limits of the same run, and the error against a plain computation of
// the same rounded numbers. Weights rotate through more memory than the cache holds. "only read" is a kernel that reads as many bytes and does nothing with them, launched alike; "input, results" one that has
// a token's input from the kernel before, too, and stores as many results: the floor of a matmul that waits for another. "layer" is all that a layer has but its attention, as a model runs it: norms, seven weights in four matmuls, activation and sums, each over what the one before has made; o takes q.
//   bench_cuda [tokens...] [formats...] [weights...] [way=64|64c|128|128c|184|192|192c...]      names leave out the others; way: matmuls of many tokens so (cuda/gemm_way.h)
#include <algorithm>
#include <array>
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

// Weights over one input: those of a row in one matmul, as a model has them, or one alone.
struct Shape { const char* name; std::array<int64_t, 3> rows; int64_t cols; };
constexpr Shape kQwen3_8b[] = {{"q", {4096}, 4096},   {"k or v", {1024}, 4096},          {"q, k, v", {4096, 1024, 1024}, 4096}, {"o", {4096}, 4096},
                               {"gate", {12288}, 4096}, {"gate, up", {12288, 12288}, 4096}, {"down", {4096}, 12288},               {"head", {151936}, 4096}};

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

// Seconds that a step of these ops takes, at best, from the third time on, when it is a graph, and until clocks had time to rise.
double best_of(Backend& backend, const Step& step, const std::vector<Op>& ops) {
  constexpr double kSeconds = 0.06;
  double best = 1e9, all = 0;
  for (int repeat = 0; repeat < 8 || all < kSeconds; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    backend.begin(step);
    for (const Op& op : ops) backend.run(op);
    backend.end();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (repeat >= 2) best = std::min(best, seconds);
    all += seconds;
  }
  return best;
}

Step plain_step(int n_tokens) {
  Step step({.max_tokens = n_tokens, .max_seqs = 1, .max_logits = 1, .max_pages = 1});
  step.clear();
  for (int t = 0; t < n_tokens; ++t) step.add_token(0, t, 0, false);
  return step;
}

void print_row(FormatId id, const char* what, int n_tokens, double seconds, double bytes, double products, double bandwidth, const std::string& error) {
  std::printf("| %s | %s | %d | %.1f | %.2f | %.2f | %.0f | %s |\n", std::string(format(id).name).c_str(), what, n_tokens, seconds * 1e6, bytes / seconds / 1e12, bytes / seconds / bandwidth,
              2 * products * n_tokens / seconds / 1e12, error.c_str());
  std::fflush(stdout);
}

std::string with_way(const char* what, cuda::GemmWay way) { return way.tokens == 0 ? what : std::string(what) + ", way=" + std::to_string(way.tokens) + (way.by_chain ? "c" : ""); }

void run_layers(FormatId id, const std::vector<int>& token_counts, cuda::GemmWay way, double bandwidth, std::mt19937& rng) {
  constexpr int kLayers = 36, kModel = 4096, kKv = 1024, kMlp = 12288;
  auto backend = make_cuda_backend({.gemm_way = way});
  int64_t bytes = 0, products = 0;
  const auto weights = [&](const char* name, int64_t rows, int64_t cols) {
    std::vector<std::byte> codes = random_codes(id, rows, cols, rng);
    const StoredWeight stored{.name = name, .format = id, .rows = rows, .cols = cols, .codes = view(codes.data(), id, rows, cols)};
    std::vector<Weight> made;
    for (int i = 0; i < kLayers; ++i) made.push_back(backend->prepare(stored, {}));
    bytes += row_bytes(id, cols) * rows, products += rows * cols;
    return made;
  };
  const auto q = weights("q", kModel, kModel), k = weights("k", kKv, kModel), v = weights("v", kKv, kModel), o = weights("o", kModel, kModel), gate = weights("gate", kMlp, kModel),
             up = weights("up", kMlp, kModel), down = weights("down", kModel, kMlp);
  const std::vector<float> ones(kModel, 1.0f);
  const Tensor norm = backend->upload(ones.data(), kModel);
  for (const int n : token_counts) {
    std::vector<float> values(size_t(n) * kModel);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (float& x : values) x = normal(rng);
    Tensor x = backend->upload(values.data(), int64_t(values.size()));
    x = {x.data, FormatId::f32, n, kModel, kModel * 4};
    const auto rows = [&](int64_t cols) { return backend->allocate_f32(n, cols); };
    const Tensor normed = rows(kModel), pending = rows(kModel), tq = rows(kModel), tk = rows(kKv), tv = rows(kKv), tg = rows(kMlp), tu = rows(kMlp);
    std::vector<Op> ops;
    for (int i = 0; i < kLayers; ++i) {
      ops.push_back(AddNorm{.out = normed, .x = x, .pending = i > 0 ? pending : Tensor{}, .weight = norm, .eps = 1e-6f});
      ops.push_back(Matmul{.out = {tq, tk, tv}, .x = normed, .w = {&q[i], &k[i], &v[i]}});
      ops.push_back(Matmul{.out = {pending}, .x = tq, .w = {&o[i]}});
      ops.push_back(AddNorm{.out = normed, .x = x, .pending = pending, .weight = norm, .eps = 1e-6f});
      ops.push_back(Matmul{.out = {tg, tu}, .x = normed, .w = {&gate[i], &up[i]}});
      ops.push_back(Activate{.out = tg, .gate = tg, .up = tu, .kind = ActKind::silu});
      ops.push_back(Matmul{.out = {pending}, .x = tg, .w = {&down[i]}});
    }
    print_row(id, with_way("layer", way).c_str(), n, best_of(*backend, plain_step(n), ops) / kLayers, double(bytes), double(products), bandwidth, "-");
  }
}

void run_shape(FormatId id, const Shape& shape, const std::vector<int>& token_counts, cuda::GemmWay way, double bandwidth, std::mt19937& rng) {
  std::vector<std::vector<std::byte>> codes;
  std::vector<StoredWeight> stored;
  int64_t bytes = 0, n_rows = 0;
  for (const int64_t rows : shape.rows) {
    if (rows == 0) continue;
    codes.push_back(random_codes(id, rows, shape.cols, rng));
    stored.push_back({.name = shape.name, .format = id, .rows = rows, .cols = shape.cols, .codes = view(codes.back().data(), id, rows, shape.cols)});
    bytes += row_bytes(id, shape.cols) * rows, n_rows += rows;
  }
  const auto print_floor = [&](const char* what, double seconds) {
    if (seconds > 0) print_row(id, (std::string(shape.name) + what).c_str(), 0, seconds, double(bytes), 0, bandwidth, "-");
  };
  if (way.tokens == 0) {
    print_floor(", only read", measure_cuda_read_in_turn(bytes));
    print_floor(", input, results", measure_cuda_read_in_turn(bytes, 2 * shape.cols, 4 * n_rows));
  }
  auto backend = make_cuda_backend({.gemm_way = way});
  const int n_layers = int(std::clamp<int64_t>((int64_t{400} << 20) / bytes + 1, 2, 64));
  std::vector<std::array<Weight, 3>> layers(n_layers);
  for (auto& weights : layers)
    for (size_t i = 0; i < stored.size(); ++i) weights[i] = backend->prepare(stored[i], {});
  for (const int n_tokens : token_counts) {
    std::vector<float> values(size_t(n_tokens) * shape.cols);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (float& v : values) v = normal(rng);
    Tensor input = backend->upload(values.data(), int64_t(values.size()));
    input = {input.data, FormatId::f32, n_tokens, shape.cols, shape.cols * 4};
    std::array<Tensor, 3> out;
    for (size_t i = 0; i < stored.size(); ++i) out[i] = backend->allocate_f32(n_tokens, stored[i].rows);
    std::vector<Op> ops;
    for (const auto& weights : layers) {
      Matmul op{.x = input};
      for (size_t i = 0; i < stored.size(); ++i) op.out[i] = out[i], op.w[i] = &weights[i];
      ops.push_back(op);
    }
    const double best = best_of(*backend, plain_step(n_tokens), ops) / n_layers;
    double worst = 0, squares = 0;
    int n_checked = 0;
    for (size_t i = 0; i < stored.size(); ++i) {
      std::vector<float> got(size_t(n_tokens) * stored[i].rows), row(shape.cols);
      backend->download(got.data(), out[i]);
      for (int64_t r = 0; r < stored[i].rows; r += std::max<int64_t>(1, stored[i].rows / 97)) {
        decode_stored_row(row.data(), stored[i], r);
        for (int t = 0; t < n_tokens; t += std::max(1, n_tokens / 5)) {
          double sum = 0;
          for (int64_t k = 0; k < shape.cols; ++k) sum += double(row[k]) * bf16_to_f32(f32_to_bf16(values[size_t(t) * shape.cols + k]));
          const double missed = std::fabs(sum - got[size_t(t) * stored[i].rows + r]);
          worst = std::isfinite(missed) ? std::max(worst, missed) : INFINITY;
          squares += sum * sum;
          ++n_checked;
        }
      }
    }
    char error[32];
    std::snprintf(error, sizeof error, "%.1e", worst / std::sqrt(squares / n_checked));
    print_row(id, with_way(shape.name, way).c_str(), n_tokens, best, double(bytes), double(n_rows) * double(shape.cols), bandwidth, error);
  }
}

void run(int argc, char** argv) {
  std::vector<int> token_counts;
  std::vector<std::string> names;
  std::vector<cuda::GemmWay> ways;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("way=")) ways.push_back({std::atoi(argv[i] + 4), word.ends_with('c')});
    else if (const int n = std::atoi(argv[i]); n > 0) token_counts.push_back(n);
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
  shape_names.emplace_back("layer");
  if (ways.empty()) ways.push_back({});
  if (token_counts.empty()) token_counts = {1, 8, 32, 64, 512};
  const double bandwidth = measure_cuda_read_bandwidth();
  std::printf("%s; read bandwidth %.2f TB/s\n", cuda_device_description().c_str(), bandwidth / 1e12);
  std::printf("| format | weight | tokens | us | TB/s | share of read bandwidth | TFLOP/s | largest error / rms |\n|---|---|---|---|---|---|---|---|\n");
  for (const FormatId id : formats) {
    if (!wanted(std::string(format(id).name), format_names)) continue;
    std::mt19937 rng(1);
    for (const Shape& shape : kQwen3_8b) {
      if (!wanted(shape.name, shape_names)) continue;
      for (const cuda::GemmWay way : ways) run_shape(id, shape, token_counts, way, bandwidth, rng);
    }
    for (const cuda::GemmWay way : ways)
      if (wanted("layer", shape_names)) run_layers(id, token_counts, way, bandwidth, rng);
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
