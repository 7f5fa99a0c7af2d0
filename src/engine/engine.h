// The engine: requests in, tokens out. step() is the table of contents of the whole system:
// the scheduler grants tokens, batch lays them out as a Step, the decoder runs it on the backend, the sampler appends tokens.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/ledger.h"
#include "engine/options.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "files/checkpoint.h"
#include "kv/prefix_report.h"
#include "model/model.h"
#include "sample/sampler.h"
#include "sequence/batch.h"

namespace ridge {

struct EngineStats {
  int64_t n_steps = 0, n_prefill_tokens = 0, n_decode_tokens = 0, n_preemptions = 0, n_rope_restarts = 0;
  int64_t n_ahead = 0;                       // of the steps, those that were submitted before the one before them was done
  int64_t n_left_open = 0;                   // draws that the device left to the host
  double seconds_in_steps = 0;
  // Of the steps that only decoded: what a decoded token costs.
  struct Decoding {
    int64_t n_tokens = 0;
    Traffic traffic;
    double seconds = 0;
    double bytes_per_token() const { return n_tokens > 0 ? double(traffic.bytes()) / double(n_tokens) : 0; }
    double bytes_per_second() const { return seconds > 0 ? double(traffic.bytes()) / seconds : 0; }
  } decoding;
};

// A request that waits or runs.
struct LiveRequest {
  uint64_t id;
  SeqState state;
  int slot, n_prompt, n_cached, n_computed, n_generated, n_preempted, priority;
};

struct AdapterInfo {
  std::string name, path;
  int rank = 0;
  size_t n_parts = 0;                        // matrices of the base that it adds to
  int64_t bytes = 0;
};

class Engine {
 public:
  Engine(const Checkpoint& checkpoint, EngineOptions options);      // the checkpoint outlives it
  Engine(Checkpoint&&, EngineOptions) = delete;
  ~Engine();

  // Throws Error when the request can never run (empty prompt, token out of range, longer than the context, bad parameters).
  uint64_t submit(Request request);
  void check(const Request& request) const;  // throws as submit does; from any thread
  void cancel(uint64_t id);                  // its last event says cancelled; an id that has ended already is ignored
  bool idle() const;                         // nothing waiting or running, and no event to hand out
  void discard_events();                     // of cancelled requests that nobody waits for any more
  // One forward pass; the device may be at the next one already. Stop ids (eos and stop_token_ids) end a sequence here; stop strings are the caller's business, who has the text.
  std::vector<Event> step();

  // Called with rows of logits of sequences that want all of them: (id, position of the row's token, logits [n_vocab]). A row that is computed again (after
  // a preemption, or when the rotary angles changed) comes again.
  using LogitsSink = std::function<void(uint64_t id, int position, std::span<const float> logits)>;
  void set_logits_sink(LogitsSink sink);
  // Tests: preempt a sequence now (its pages are dropped and recomputed); nothing when it is not running.
  void preempt(uint64_t id);

  // LoRA adapters (model/adapter.h), chosen by Request::adapter. Between steps; requests that run with one that is unloaded go on with it.
  void load_adapter(const std::string& name, const std::string& folder);     // throws Error saying what does not fit
  void unload_adapter(const std::string& name);
  std::vector<AdapterInfo> adapters() const;

  const Model& model() const;
  const KvCache& kv() const;
  Backend& backend();
  Ledger& ledger();
  const EngineStats& stats() const;
  int max_context() const;                   // tokens of one sequence, prompt and answer
  const EngineOptions& options() const;
  std::vector<LiveRequest> live() const;
  PrefixReport cache_report() const;
  int64_t flush_cache();                     // forgets what is cached beyond what runs; returns the number of pages given back
  void check_integrity() const;              // of the KV cache against all live sequences and the prefix cache

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ridge
