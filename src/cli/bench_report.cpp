#include "cli/bench_report.h"

#include <algorithm>

#include "base/error.h"
#include "cli/progress.h"

namespace ridge {
namespace {

bool is_decode(const BenchResult& r) { return r.test.kind == BenchTest::Kind::decode; }
double bytes_per_token(const BenchResult& r) { return r.n_tokens > 0 ? r.bytes_per_step * double(r.n_steps) / double(r.n_tokens) : 0; }
double percent(const BenchResult& r) { return r.read_bandwidth > 0 ? 100 * r.bytes_per_second() / r.read_bandwidth : 0; }

// A row of an earlier run that measured the same.
const Json* same_test(const Json& earlier, const BenchRow& row) {
  for (const Json& old : earlier)
    if (old.is_object() && old.value("model", "") == row.model.name && old.value("test", "") == row.result.test.name() && old.value("threads", 0) == row.result.test.n_threads) return &old;
  return nullptr;
}

}  // namespace

Json to_json(const BenchRow& row) {
  const BenchResult& r = row.result;
  const double best = r.seconds.empty() ? 0 : *std::min_element(r.seconds.begin(), r.seconds.end());
  return {{"model", row.model.name}, {"device", row.model.device}, {"activations", row.model.activations}, {"parameters", row.model.n_params}, {"bytes", row.model.bytes}, {"streamed_bytes", row.model.streamed_bytes},
          {"load_seconds", row.model.load_seconds}, {"test", r.test.name()}, {"kind", is_decode(r) ? "decode" : "prefill"}, {"n_tokens", r.test.n_tokens}, {"depth", r.test.depth},
          {"batch", r.test.batch}, {"threads", r.test.n_threads}, {"seconds", r.seconds}, {"tokens_per_second", r.mean_speed()}, {"best_tokens_per_second", r.best_speed()},
          {"spread_tokens_per_second", r.spread()}, {is_decode(r) ? "seconds_per_step" : "seconds_to_first_token", is_decode(r) ? best / double(std::max<int64_t>(r.n_steps, 1)) : best},
          {"bytes_per_token", bytes_per_token(r)}, {"bytes_per_second", r.bytes_per_second()}, {"read_bytes_per_second", r.read_bandwidth}, {"percent_of_read_bandwidth", percent(r)}};
}

Table to_table(const std::vector<BenchRow>& rows, const Json& earlier) {
  std::vector<Column> columns = {{"model"}, {"size", true}, {"threads", true}, {"test"}, {"tokens/s", true}, {"best", true}, {"latency", true}, {"MB/token", true}, {"GB/s", true}, {"of read bandwidth", true}};
  const bool compares = earlier.is_array() && !earlier.empty();
  if (compares) columns.push_back({"against before", true});
  Table table(columns);
  for (const BenchRow& row : rows) {
    const BenchResult& r = row.result;
    const double best = r.seconds.empty() ? 0 : *std::min_element(r.seconds.begin(), r.seconds.end());
    std::vector<std::string> cells = {row.model.name, human_bytes(double(row.model.bytes)), std::to_string(r.test.n_threads), r.test.name(), fmt::format("{:.2f} ± {:.2f}", r.mean_speed(), r.spread()),
                                      fmt::format("{:.2f}", r.best_speed()), human_seconds(is_decode(r) ? best / double(std::max<int64_t>(r.n_steps, 1)) : best),
                                      fmt::format("{:.2f}", bytes_per_token(r) / 1e6), fmt::format("{:.2f}", r.bytes_per_second() / 1e9),
                                      is_decode(r) ? fmt::format("{:.1f} %", percent(r)) : "-"};
    if (compares) {
      const Json* old = same_test(earlier, row);
      const double before = old ? old->value("best_tokens_per_second", 0.0) : 0;
      cells.push_back(before > 0 ? fmt::format("{:.2f}x ({:.2f})", r.best_speed() / before, before) : "-");
    }
    table.add(std::move(cells));
  }
  return table;
}

Json read_earlier(const std::string& path) {
  const Json all = read_json_file(path);
  if (!all.is_object() || !all.contains("results") || !all["results"].is_array()) fail("--compare {}: not a file that `ridge bench --json` wrote (no \"results\")", path);
  for (const Json& row : all["results"]) {
    const bool good = row.is_object() && row.contains("model") && row["model"].is_string() && row.contains("test") && row["test"].is_string() && row.contains("threads") && row["threads"].is_number_integer() &&
                      row.contains("best_tokens_per_second") && row["best_tokens_per_second"].is_number();
    if (!good) fail("--compare {}: a row lacks model, test, threads or best_tokens_per_second", path);
  }
  return all["results"];
}

Table ledger_table(const Ledger& ledger, double read_bandwidth) {
  Table table({{"op"}, {"calls/step", true}, {"time/step", true}, {"share", true}, {"MB/step", true}, {"GB/s", true}, {"of read bandwidth", true}, {"GFLOP/s", true}});
  double seconds = 0;
  std::vector<std::pair<std::string, LedgerEntry>> entries(ledger.entries().begin(), ledger.entries().end());
  for (const auto& [name, e] : entries) seconds += e.seconds;
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const double steps = double(std::max<int64_t>(ledger.n_steps(), 1));
  for (const auto& [name, e] : entries) {
    const double speed = e.seconds > 0 ? double(e.traffic.bytes()) / e.seconds : 0;
    table.add({name, fmt::format("{:.0f}", double(e.n_ops) / steps), human_seconds(e.seconds / steps), fmt::format("{:.1f} %", seconds > 0 ? 100 * e.seconds / seconds : 0),
               fmt::format("{:.2f}", double(e.traffic.bytes()) / steps / 1e6), fmt::format("{:.2f}", speed / 1e9), fmt::format("{:.0f} %", read_bandwidth > 0 ? 100 * speed / read_bandwidth : 0),
               fmt::format("{:.1f}", e.seconds > 0 ? e.traffic.flops / e.seconds / 1e9 : 0)});
  }
  return table;
}

}  // namespace ridge
