#include "server/live_figures.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace ridge {
namespace {

constexpr double kFresh = 0.2;               // seconds

LiveFigures gather(Engine& engine, double time) {
  LiveFigures f;
  f.time = time;
  f.engine = engine.stats();
  f.moved_bytes = engine.ledger().total().bytes();
  for (const LiveRequest& request : engine.live()) (request.state == SeqState::running ? f.n_running : f.n_waiting)++;
  f.cache = engine.cache_report();
  for (const PrefixReport::Group& group : f.cache.groups) {
    f.n_pages += group.n_pages;
    f.n_free_pages += group.n_free;
    f.n_cached_pages += group.n_cached;
    f.n_shared_pages += group.n_shared;
  }
  f.n_used_pages = f.n_pages - f.n_free_pages - f.n_cached_pages;
  return f;
}

// What a decoded token costs, of the steps since `base` that did nothing else; where there were none the last known figures stay.
void add_rates(LiveFigures& f, const LiveFigures& base, const LiveFigures& last, double bandwidth) {
  const EngineStats::Decoding &now = f.engine.decoding, &before = base.engine.decoding;
  const double n_tokens = double(now.n_tokens - before.n_tokens), seconds = now.seconds - before.seconds, bytes = double(now.traffic.bytes() - before.traffic.bytes());
  f.bytes_per_token = n_tokens > 0 ? bytes / n_tokens : last.bytes_per_token;
  f.bandwidth_share = seconds > 0 && bandwidth > 0 ? bytes / seconds / bandwidth : last.bandwidth_share;
}

}  // namespace

LiveFiguresSource::LiveFiguresSource(EngineThread& engine, double bandwidth) : engine_(engine), bandwidth_(bandwidth) {}

void LiveFiguresSource::get(Then then) {
  Shared& s = *shared_;
  const auto now = [start = start_] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  {
    std::unique_lock lock(s.mutex);
    if ((s.known && now() - s.latest.time < kFresh) || !engine_.fault().empty()) {
      const LiveFigures figures = s.latest;
      lock.unlock();
      return then(figures);
    }
    s.waiting.push_back(std::move(then));
    if (s.waiting.size() > 1) return;        // somebody has asked already
  }
  engine_.post([shared = shared_, now, bandwidth = bandwidth_](Engine& engine) {
    LiveFigures f = gather(engine, now());
    std::vector<Then> waiting;
    {
      const std::lock_guard lock(shared->mutex);
      add_rates(f, shared->base, shared->latest, bandwidth);
      if (f.time - shared->base.time > 1) shared->base = f;
      shared->latest = f;
      shared->known = true;
      waiting.swap(shared->waiting);
    }
    for (const Then& one : waiting) one(f);
  });
}

int64_t resident_bytes() {
  long total = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &total, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return int64_t(resident) * ::sysconf(_SC_PAGESIZE);
}

int n_open_files() {
  std::error_code ec;
  int n = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", ec); !ec && it != std::filesystem::directory_iterator(); it.increment(ec)) ++n;
  return n;
}

}  // namespace ridge
