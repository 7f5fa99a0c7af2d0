// Prometheus' text at /metrics: what was asked and answered (counted here, as requests end) and what the engine does (live_figures.h), as ridge_* and, where wanted,
// under vLLM's names as well.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/request.h"
#include "server/live_figures.h"

namespace ridge {

class Metrics {
 public:
  struct About { std::string model, version, device; int max_context = 0, max_seqs = 0, page_size = 0; int64_t kv_bytes = 0; };
  Metrics(bool vllm_names);
  ~Metrics();

  // What Service calls, on connections' threads.
  void on_finished(const RequestTiming& timing, std::string_view finish);
  void on_tokens(const Event& event, TimePoint came);
  void on_refused(int status);               // 429 and the like

  // Once the model is loaded. Until then, and after a null, there are only the figures of the process.
  void watch(std::shared_ptr<LiveFiguresSource> source, About about);
  void watch_connections(std::function<int()> n_connections);

  // Figures of the engine, soon (LiveFiguresSource::get); empty ones at once while there is no engine.
  void look(LiveFiguresSource::Then then) const;
  std::string text(const LiveFigures& figures) const;           // version 0.0.4 of the exposition format
  Json live(const LiveFigures& figures) const;                  // the same for the page, at /live

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ridge
