// What the engine does right now, for the page and for /metrics: totals since the start, and who runs, waits and holds pages. Gathered between two steps and kept
// for a moment, so that any number of pollers cost the engine one look every 200 ms; nobody waits for it, who asks is told when it is there.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/json.h"
#include "engine/engine_thread.h"

namespace ridge {

struct LiveFigures {
  double time = 0;                           // seconds since the server began
  EngineStats engine;
  int64_t moved_bytes = 0;                   // by all steps: weights, KV and activations
  int n_running = 0, n_waiting = 0;
  PrefixReport cache;
  int64_t n_pages = 0, n_used_pages = 0, n_shared_pages = 0, n_cached_pages = 0, n_free_pages = 0;     // used: held by requests; cached: kept for those to come
  double bytes_per_token = 0, bandwidth_share = 0;               // of steps that only decode, over the last second or so in which there were any
};

class LiveFiguresSource {
 public:
  // `bandwidth`: bytes per second the device can read. The engine must outlive this.
  LiveFiguresSource(EngineThread& engine, double bandwidth);
  // From any thread. `then` is called at once when there are fresh figures, else after the step that runs, on the engine's thread: it must only hand them on.
  using Then = std::function<void(const LiveFigures& figures)>;
  void get(Then then);
  double bandwidth() const { return bandwidth_; }

 private:
  struct Shared {                            // also of the work that is on its way to the engine
    std::mutex mutex;
    LiveFigures latest, base;                // base: where the rates count from
    bool known = false;
    std::vector<Then> waiting;
  };
  EngineThread& engine_;
  double bandwidth_;
  TimePoint start_ = std::chrono::steady_clock::now();
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

int64_t resident_bytes();                    // of this process
int n_open_files();

}  // namespace ridge
