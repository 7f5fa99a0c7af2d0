#include "cli/bench_serve_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ridge::load {
namespace {

double mean(const std::vector<double>& values) { return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / double(values.size()); }

std::string ms(double value) { return value >= 100 ? fmt::format("{:.0f}", value) : value >= 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value); }

int peak_of(const std::vector<Outcome>& outcomes) {
  std::vector<std::pair<double, int>> changes;
  for (const Outcome& o : outcomes) changes.push_back({o.due, 1}), changes.push_back({o.end, -1});
  std::sort(changes.begin(), changes.end());           // an end before a beginning at the same time
  int now = 0, peak = 0;
  for (const auto& change : changes) peak = std::max(peak, now += change.second);
  return peak;
}

bool keeps(const Outcome& o, const Targets& t) {
  return o.error.empty() && (t.ttft_ms <= 0 || o.ttft() * 1e3 <= t.ttft_ms) && (t.tpot_ms <= 0 || o.tpot() * 1e3 <= t.tpot_ms) && (t.e2el_ms <= 0 || o.e2el() * 1e3 <= t.e2el_ms);
}

std::string targets_text(const Targets& t) {
  std::string out;
  for (const auto& [name, value] : {std::pair{"TTFT", t.ttft_ms}, {"TPOT", t.tpot_ms}, {"E2EL", t.e2el_ms}})
    if (value > 0) out += fmt::format("{}{} ≤ {} ms", out.empty() ? "" : ", ", name, ms(value));
  return out.empty() ? "no target" : out;
}

}  // namespace

std::string LoadPoint::label() const {
  if (rate > 0 && std::isinf(rate)) return "all at once";
  if (rate > 0) return fmt::format("{:g}/s", rate);
  return concurrency > 0 ? fmt::format("{} at once", concurrency) : "as timed";
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = std::clamp(share, 0.0, 1.0) * double(values.size() - 1);
  const size_t low = size_t(at), high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - double(low));
}

Figures figures_of(const LoadPoint& point, const Targets& targets) {
  Figures f;
  f.seconds = point.seconds;
  f.peak_concurrency = peak_of(point.outcomes);
  for (const Outcome& o : point.outcomes) {
    if (!o.error.empty()) {
      if (f.n_failed++ == 0) f.first_error = o.error;
      continue;
    }
    ++f.n_done;
    f.n_good += keeps(o, targets);
    f.n_prompt += o.n_prompt, f.n_cached += o.n_cached, f.n_generated += o.n_generated;
    f.ttft.push_back(o.ttft() * 1e3);
    f.e2el.push_back(o.e2el() * 1e3);
    if (o.n_generated > 1) f.tpot.push_back(o.tpot() * 1e3);
    for (const double gap : o.gaps) f.itl.push_back(gap * 1e3);
  }
  return f;
}

Json to_json(const LoadPoint& point, const Targets& targets) {
  const Figures f = figures_of(point, targets);
  Json out = {{"request_rate", std::isfinite(point.rate) ? Json(point.rate) : Json("inf")}, {"max_concurrency", point.concurrency}, {"duration", f.seconds}, {"completed", f.n_done}, {"failed", f.n_failed},
              {"total_input_tokens", f.n_prompt}, {"cached_input_tokens", f.n_cached}, {"total_output_tokens", f.n_generated}, {"request_throughput", f.per_second(f.n_done)},
              {"request_goodput", f.per_second(f.n_good)}, {"good_share", f.n_done + f.n_failed ? double(f.n_good) / (f.n_done + f.n_failed) : 0}, {"output_throughput", f.per_second(double(f.n_generated))},
              {"total_token_throughput", f.per_second(double(f.n_prompt + f.n_generated))}, {"max_concurrent_requests", f.peak_concurrency}};
  for (const auto& [name, values] : {std::pair{"ttft", &f.ttft}, {"tpot", &f.tpot}, {"itl", &f.itl}, {"e2el", &f.e2el}}) {
    out[fmt::format("mean_{}_ms", name)] = mean(*values);
    out[fmt::format("median_{}_ms", name)] = percentile(*values, 0.5);
    for (const int p : {90, 95, 99}) out[fmt::format("p{}_{}_ms", p, name)] = percentile(*values, p / 100.0);
    out[fmt::format("max_{}_ms", name)] = percentile(*values, 1);
  }
  if (!f.first_error.empty()) out["first_error"] = f.first_error;
  return out;
}

std::string report(const LoadPoint& point, const Targets& targets) {
  const Figures f = figures_of(point, targets);
  std::string out = fmt::format("{}: {} requests in {:.1f} s{}, {:.2f} requests/s, at most {} at once\n", point.label(), f.n_done, f.seconds, f.n_failed ? fmt::format(" ({} failed)", f.n_failed) : "",
                                f.per_second(f.n_done), f.peak_concurrency);
  out += fmt::format("  output {:.1f} tok/s, prompts {:.1f} tok/s ({:.0f} % of them cached), goodput {:.2f} requests/s ({} of {}; {})\n", f.per_second(double(f.n_generated)), f.per_second(double(f.n_prompt)),
                     f.n_prompt ? 100.0 * double(f.n_cached) / double(f.n_prompt) : 0.0, f.per_second(f.n_good), f.n_good, f.n_done + f.n_failed, targets_text(targets));
  if (!f.first_error.empty()) out += "  first failure: " + f.first_error + "\n";
  Table table({{"ms"}, {"mean", true}, {"p50", true}, {"p90", true}, {"p95", true}, {"p99", true}, {"max", true}});
  for (const auto& [name, values] : {std::pair{"TTFT  to the first token", &f.ttft}, {"TPOT  per token after it", &f.tpot}, {"ITL   between pieces", &f.itl}, {"E2EL  to the end", &f.e2el}})
    table.add({name, ms(mean(*values)), ms(percentile(*values, 0.5)), ms(percentile(*values, 0.9)), ms(percentile(*values, 0.95)), ms(percentile(*values, 0.99)), ms(percentile(*values, 1))});
  return out + table.aligned("  ");
}

Table summary(const std::vector<LoadPoint>& points, const Targets& targets) {
  Table table({{"load"}, {"done", true}, {"failed", true}, {"req/s", true}, {"out tok/s", true}, {"TTFT p50", true}, {"p95", true}, {"p99", true}, {"TPOT p50", true}, {"p95", true}, {"p99", true}, {"ITL p99", true},
               {"E2EL p50", true}, {"p95", true}, {"goodput/s", true}, {"good", true}});
  for (const LoadPoint& point : points) {
    const Figures f = figures_of(point, targets);
    const int n = f.n_done + f.n_failed;
    table.add({point.label(), std::to_string(f.n_done), std::to_string(f.n_failed), fmt::format("{:.2f}", f.per_second(f.n_done)), fmt::format("{:.1f}", f.per_second(double(f.n_generated))), ms(percentile(f.ttft, 0.5)),
               ms(percentile(f.ttft, 0.95)), ms(percentile(f.ttft, 0.99)), ms(percentile(f.tpot, 0.5)), ms(percentile(f.tpot, 0.95)), ms(percentile(f.tpot, 0.99)), ms(percentile(f.itl, 0.99)), ms(percentile(f.e2el, 0.5)),
               ms(percentile(f.e2el, 0.95)), fmt::format("{:.2f}", f.per_second(f.n_good)), fmt::format("{:.0f} %", n ? 100.0 * f.n_good / n : 0.0)});
  }
  return table;
}

}  // namespace ridge::load
