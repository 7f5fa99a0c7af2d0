// Results of `ridge bench` as tables and as JSON, and the comparison with an earlier run.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "backend/ledger.h"
#include "cli/bench_plan.h"
#include "cli/table.h"

namespace ridge {

struct BenchModel {
  std::string name;
  int64_t n_params = 0, bytes = 0, streamed_bytes = 0;
  std::string device, activations;
  double load_seconds = 0;
};

struct BenchRow { BenchModel model; BenchResult result; };

Json to_json(const BenchRow& row);
Table to_table(const std::vector<BenchRow>& rows, const Json& earlier);               // earlier: an array of rows as JSON; empty: no comparison
Json read_earlier(const std::string& path);                                           // the rows of a file that --json wrote
Table ledger_table(const Ledger& ledger, double read_bandwidth);                      // where the time of the last repetition went, by op

}  // namespace ridge
