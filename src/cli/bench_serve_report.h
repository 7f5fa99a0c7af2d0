// What came of a load: latencies as percentiles, throughput, and goodput (requests that kept every target). Names in JSON are those of `vllm bench serve`.
//   TTFT: from when a request was due to its first text. TPOT: the rest of its time over the rest of its tokens. ITL: between two pieces of text. E2EL: until its end.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/table.h"

namespace ridge::load {

struct Outcome {                                       // times in seconds after the start of the load
  double due = 0, first = 0, end = 0;
  std::vector<double> gaps;                            // between pieces of text
  int n_prompt = 0, n_cached = 0, n_generated = 0;
  std::string error;                                   // empty: it ended well
  double ttft() const { return first - due; }
  double tpot() const { return n_generated > 1 ? (end - first) / (n_generated - 1) : 0; }
  double e2el() const { return end - due; }
};

struct Targets { double ttft_ms = 0, tpot_ms = 0, e2el_ms = 0; };       // 0: none

struct LoadPoint {
  double rate = 0;                                     // requests per second; 0: closed loop
  int concurrency = 0;                                 // 0: no limit
  double seconds = 0;                                  // from the start to the last end
  std::vector<Outcome> outcomes;
  std::string label() const;
};

// Linear between the two nearest ranks, as numpy has it; share in [0, 1]. 0 for an empty list.
double percentile(std::vector<double> values, double share);

struct Figures {
  int n_done = 0, n_failed = 0, n_good = 0;
  int64_t n_prompt = 0, n_cached = 0, n_generated = 0;
  int peak_concurrency = 0;
  double seconds = 0;
  std::vector<double> ttft, tpot, itl, e2el;           // milliseconds
  std::string first_error;
  double per_second(double n) const { return seconds > 0 ? n / seconds : 0; }
};
Figures figures_of(const LoadPoint& point, const Targets& targets);

Json to_json(const LoadPoint& point, const Targets& targets);
std::string report(const LoadPoint& point, const Targets& targets);     // of one point, for people
Table summary(const std::vector<LoadPoint>& points, const Targets& targets);      // one row a point

}  // namespace ridge::load
