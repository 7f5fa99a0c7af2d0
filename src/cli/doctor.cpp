// `ridge doctor`: what this machine can do for a model, and what is missing.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <set>

#include "base/json.h"
#include "cli/child_process.h"
#include "cli/command.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "cpu/cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "files/hub_cache.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

struct Finding { bool good; std::string text; };

std::vector<Finding> check_surroundings(const CacheFolders& folders) {
  std::vector<Finding> findings;
  std::error_code ec;
  fs::create_directories(folders.ridge, ec);
  const bool writable = !ec && ::access(folders.ridge.c_str(), W_OK) == 0;
  findings.push_back({writable, writable ? fmt::format("models are kept in {} ({} free) and {}", folders.ridge, human_bytes(double(fs::space(folders.ridge, ec).available)), folders.hub)
                                         : fmt::format("the cache folder {} cannot be written; set RIDGE_CACHE to one that can", folders.ridge)});
  const bool pip = run_child({"python3", "-m", "pip", "--version"}).exit_code == 0 || run_child({"pip3", "--version"}).exit_code == 0;
  findings.push_back({pip, pip ? "pip is there, for `ridge pull smollm2`" : "pip is missing, which `ridge pull smollm2` needs; on Debian: apt install python3-pip"});
#ifndef RIDGE_WITH_EDITLINE
  findings.push_back({false, "built without line editing; on Debian: apt install libedit-dev, then build again"});
#endif
  if (std::string(RIDGE_BUILD_TYPE) != "Release") findings.push_back({false, "this is a " RIDGE_BUILD_TYPE " build, much slower than a Release build"});
  return findings;
}

std::vector<int> thread_counts(int n) {
  std::set<int> counts;
  for (int t = 1; t < n; t *= 2) counts.insert(t);
  counts.insert(n);
  return {counts.begin(), counts.end()};
}

void doctor(bool as_json, bool measure) {
  const Machine machine = this_machine();
  const GpuReport gpus = find_gpus();
  const auto isas = available_isas(), features = cpu_features();
  const auto findings = check_surroundings(CacheFolders::from_environment());
  Json bandwidth = Json::object();
  if (measure) {
    Progress progress("measuring memory bandwidth");
    const auto counts = thread_counts(machine.n_usable);
    for (size_t i = 0; i < counts.size(); ++i) {
      progress.update(double(i) / double(counts.size()), fmt::format("{} threads", counts[i]));
      bandwidth[std::to_string(counts[i])] = measure_read_bandwidth(counts[i], int64_t{1} << 28, 0.5);
    }
  }
  if (as_json) {
    Json gpu_list = Json::array(), missing = Json::array();
    for (const Gpu& g : gpus.gpus) gpu_list.push_back({{"name", g.name}, {"driver", g.driver}, {"memory_bytes", g.memory_bytes}});
    for (const Finding& f : findings)
      if (!f.good) missing.push_back(f.text);
    const Json all = {{"version", RIDGE_VERSION}, {"cpu", machine.cpu}, {"n_cpus", machine.n_cpus}, {"n_usable", machine.n_usable}, {"caches", machine.caches}, {"isas", isas}, {"features", features},
                      {"memory_bytes", machine.memory_bytes}, {"available_bytes", machine.available_bytes}, {"read_bytes_per_second", bandwidth}, {"gpus", gpu_list}, {"missing", missing}};
    fmt::print("{}\n", all.dump(1));
    return;
  }
  fmt::print("ridge {} ({} build)\n\n", RIDGE_VERSION, RIDGE_BUILD_TYPE);
  fmt::print("CPU          {}, {} of {} cores usable\n", machine.cpu, machine.n_usable, machine.n_cpus);
  if (!machine.caches.empty()) fmt::print("caches       {}\n", fmt::join(machine.caches, ", "));
  fmt::print("kernels      {} (best first; choose with --isa)\n", fmt::join(isas, ", "));
  fmt::print("features     {}\n", features.empty() ? "none beyond the base" : fmt::format("{}", fmt::join(features, ", ")));
  fmt::print("memory       {}, {} available\n", human_bytes(double(machine.memory_bytes)), human_bytes(double(machine.available_bytes)));
  for (const auto& [threads, speed] : bandwidth.items()) fmt::print("reads        {}/s with {} thread{}\n", human_bytes(speed.get<double>()), threads, threads == "1" ? "" : "s");
  for (const Gpu& g : gpus.gpus) fmt::print("GPU          {}, {}, driver {}{}\n", g.name, human_bytes(double(g.memory_bytes)), g.driver,
                                                     cuda_unavailable_reason().empty() ? "" : fmt::format(" (not used: {})", cuda_unavailable_reason()));
  if (gpus.gpus.empty()) fmt::print("GPU          {}\n", gpus.note);
  if (!bandwidth.empty()) {
    double best = 0;
    for (const auto& [threads, speed] : bandwidth.items()) best = std::max(best, speed.get<double>());
    fmt::print("\nA model of 1 GB can give at most {:.0f} tokens/s here: each token reads all of it once.\n", best / 1e9);
  }
  fmt::print("\n");
  for (const Finding& f : findings) fmt::print("{} {}\n", f.good ? "ok      " : "missing ", f.text);
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto* sub = app.add_subcommand("doctor", "What this machine can do, and what is missing");
  struct Flags { bool json = false, quick = false; };
  auto flags = std::make_shared<Flags>();
  sub->add_flag("--json", flags->json, "As JSON");
  sub->add_flag("--quick", flags->quick, "Do not measure the memory's bandwidth");
  sub->callback([flags] { doctor(flags->json, !flags->quick); });
}

}  // namespace ridge
