#include "eval/golden.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <span>

#include "base/error.h"
#include "eval/logits.h"

namespace ridge {
namespace {

constexpr int kChunk = 7, kBatch = 8;

struct Golden {
  std::vector<int32_t> prompt;
  std::vector<int64_t> greedy;
  std::vector<float> logits, greedy_logits;
};

template <class T>
std::vector<T> numbers(const WeightFile& file, const std::string& path, const char* name) {
  const StoredWeight stored = file.get(name);
  std::vector<T> out;
  if (stored.format == FormatId::i64) {
    for (int64_t r = 0; r < stored.rows; ++r)
      for (int64_t c = 0; c < stored.cols; ++c) out.push_back(T(stored.codes.row_as<int64_t>(r)[c]));
  } else if (stored.format == FormatId::f32) {
    for (int64_t r = 0; r < stored.rows; ++r) out.insert(out.end(), stored.codes.f32(r), stored.codes.f32(r) + stored.cols);
  } else {
    fail("{}: {} is stored as {}, expected f32 or i64", path, name, format(stored.format).name);
  }
  return out;
}

Golden load_golden(const std::string& folder) {
  const std::string path = folder + "/golden.safetensors";
  const auto file = open_safetensors_file(path);
  Golden golden{numbers<int32_t>(*file, path, "prompt"), numbers<int64_t>(*file, path, "greedy"), numbers<float>(*file, path, "logits"),
                numbers<float>(*file, path, "greedy_logits")};
  if (golden.prompt.empty()) fail("{}: the prompt is empty", path);
  return golden;
}

double largest_difference(std::span<const float> a, std::span<const float> b, const std::string& what) {
  if (a.size() != b.size()) fail("{}: {} numbers, but the model gives {}", what, b.size(), a.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(double(a[i]) - b[i]);
    if (!(d <= most)) most = std::isnan(d) ? INFINITY : d;
  }
  return most;
}

// Of a row of logits the largest, and by how much it leads.
struct Leader {
  size_t first = 0;
  float margin = INFINITY;
};
Leader leader_of(std::span<const float> row) {
  Leader leader;
  for (size_t i = 1; i < row.size(); ++i)
    if (row[i] > row[leader.first]) leader.first = i;
  for (size_t i = 0; i < row.size(); ++i)
    if (i != leader.first) leader.margin = std::min(leader.margin, row[leader.first] - row[i]);
  return leader;
}

// The golden prompt and seven others made from it: shorter, and turned around at different places.
std::vector<std::vector<int32_t>> batch_of(const std::vector<int32_t>& prompt) {
  std::vector<std::vector<int32_t>> prompts = {prompt};
  for (int i = 1; i < kBatch; ++i) {
    std::vector<int32_t> other = prompt;
    std::rotate(other.begin(), other.begin() + ptrdiff_t(other.size() * size_t(i) / kBatch), other.end());
    other.resize(std::max<size_t>(1, other.size() - other.size() * size_t(i) / (2 * kBatch)));
    prompts.push_back(other);
  }
  return prompts;
}

}  // namespace

std::string_view name_of(GoldenMode mode) {
  switch (mode) {
    case GoldenMode::plain: return "plain";
    case GoldenMode::chunked: return "chunked";
    case GoldenMode::batched: return "batched";
    case GoldenMode::preempted: return "preempted";
  }
  return "plain";
}

GoldenReport check_golden(const std::string& folder, GoldenMode mode, EngineOptions options) {
  const Golden golden = load_golden(folder);
  const Checkpoint checkpoint = open_checkpoint(folder);
  const int n_greedy = int(golden.greedy.size());
  options.max_batch_tokens = 512;
  options.max_seqs = kBatch;
  options = exact_options(options, int(golden.prompt.size()) + n_greedy + 1);
  // Pages for eight whole sequences, so that only the preempted way preempts.
  options.kv_bytes = int64_t{1} << 30;

  std::vector<std::vector<int32_t>> prompts = {golden.prompt};
  if (mode == GoldenMode::batched) prompts = batch_of(golden.prompt);
  std::vector<LogitsResult> plain, served;
  GoldenReport report{.n_greedy = n_greedy};
  {
    Engine engine(checkpoint, options);
    for (const auto& prompt : prompts) plain.push_back(std::move(compute_logits(engine, {prompt}, n_greedy).front()));
    if (mode == GoldenMode::batched) served = compute_logits(engine, prompts, n_greedy);
    report.n_rope_restarts = int(engine.stats().n_rope_restarts);
  }
  if (mode == GoldenMode::chunked || mode == GoldenMode::preempted) {
    options.max_batch_tokens = options.max_logits = mode == GoldenMode::chunked ? kChunk : 3 * kChunk;
    Engine engine(checkpoint, options);
    std::mt19937 random(1);
    const BetweenSteps preempt = [&](Engine& e, const std::vector<uint64_t>& ids) {
      // Seldom enough to get somewhere: a sequence of n tokens needs n / 21 quiet steps in a row.
      if (random() % 6 == 0) e.preempt(ids[random() % ids.size()]);
    };
    served = compute_logits(engine, prompts, n_greedy, mode == GoldenMode::preempted ? preempt : BetweenSteps{});
    report.n_preemptions = int(engine.stats().n_preemptions);
    engine.check_integrity();
  }
  if (mode == GoldenMode::plain) served = plain;

  for (size_t i = 0; i < prompts.size(); ++i) {
    report.same_tokens = report.same_tokens && served[i].greedy == plain[i].greedy;
    report.drift = std::max(report.drift, largest_difference(served[i].logits, plain[i].logits, folder));
    if (served[i].greedy == plain[i].greedy)
      report.drift = std::max(report.drift, largest_difference(served[i].greedy_logits, plain[i].greedy_logits, folder));
  }
  const LogitsResult& result = served.front();
  report.difference = largest_difference(result.logits, golden.logits, folder + ": logits");
  while (report.n_agree < n_greedy && result.greedy[report.n_agree] == golden.greedy[report.n_agree]) report.n_agree++;
  if (report.n_agree == n_greedy) report.greedy_difference = largest_difference(result.greedy_logits, golden.greedy_logits, folder + ": greedy_logits");
  return report;
}

ServedReport check_golden_as_served(const std::string& folder, EngineOptions options) {
  const Golden golden = load_golden(folder);
  const int n_greedy = int(golden.greedy.size());
  options.max_batch_tokens = 512;
  options = logits_options(options, int(golden.prompt.size()) + n_greedy + 1);
  options.kv_bytes = int64_t{1} << 30;
  const Checkpoint checkpoint = open_checkpoint(folder);
  Engine engine(checkpoint, options);
  const size_t n_vocab = size_t(engine.model().n_vocab);
  ServedReport report;
  const auto compare = [&](std::span<const float> row, std::span<const float> wanted) {
    report.difference = std::max(report.difference, largest_difference(row, wanted, folder));
    report.n_rows++;
    const Leader leader = leader_of(wanted);
    if (leader.margin <= kServedMargin) return;
    report.n_decided++;
    report.n_agree += leader_of(row).first == leader.first;
  };
  const auto row_of = [&](const std::vector<float>& rows, int row) {
    if (rows.size() < (size_t(row) + 1) * n_vocab) fail("{}: {} numbers, but the model gives {} for each of its rows", folder, rows.size(), n_vocab);
    return std::span(rows).subspan(size_t(row) * n_vocab, n_vocab);
  };
  // Continued by itself, token by token; where it leaves the golden tokens, which a small lead allows, it is set back onto them.
  std::vector<int32_t> tokens = golden.prompt;
  int done = 0;
  do {
    const LogitsResult result = compute_logits(engine, {tokens}, n_greedy - done).front();
    if (done == 0)
      for (int t = 0; t < int(tokens.size()); ++t) compare(row_of(result.logits, t), row_of(golden.logits, t));
    for (int i = 0; done < n_greedy; ++i) {
      compare(row_of(result.greedy_logits, i), row_of(golden.greedy_logits, done));
      tokens.push_back(int32_t(golden.greedy[done]));
      if (result.greedy[i] != golden.greedy[done++]) break;
    }
  } while (done < n_greedy);
  return report;
}

std::vector<std::string> find_golden_cases(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(folder + "/golden.safetensors", ignored)) return {folder};
  std::vector<std::string> cases;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (fs::exists(entry.path() / "golden.safetensors", ignored)) cases.push_back(entry.path().string());
  std::sort(cases.begin(), cases.end());
  return cases;
}

}  // namespace ridge
