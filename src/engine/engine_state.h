// What an engine holds, in the order in which it is made, and the parts of its work; one file for each of them.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/engine.h"
#include "engine/flight.h"
#include "engine/kv_budget.h"
#include "engine/mask_worker.h"
#include "engine/sliced_prefill.h"
#include "kv/prefix_tree.h"
#include "model/adapter.h"

namespace ridge {

struct Engine::State {
  State(const Checkpoint& checkpoint, EngineOptions given);

  // engine_setup.cpp
  std::unique_ptr<PrefixTree> make_tree();
  void check_ops();

  // engine.cpp: a step's parts
  void follow_rope_classes();
  void launch(Flight& flight);
  void land(Flight& flight);
  void account(const Flight& flight);
  void run_slice(const Slice& slice);
  void account_for_decoding(const Flight& flight, double seconds);
  // run_ahead.cpp
  Flight& current() { return flights[size_t(current_flight)]; }        // the one under way for longest, or the next one to be
  Flight& behind() { return flights[size_t(1 - current_flight)]; }
  void run_ahead();
  bool may_go_on_unseen(const Sequence& sequence, const Step& step, const StepSeq& rows) const;
  bool ends_with_next_token(const Sequence& sequence) const;
  bool may_be_drawn(const Sequence& sequence) const;
  void write_draws(Flight& flight) const;
  bool withdraw(const Sequence& sequence);
  // engine_adapters.cpp
  void follow_adapters(const Flight& flight);
  void find_adapter_targets();
  // engine_tokens.cpp: from rows of logits to events
  void ask_for_masks(const Plan& plan);
  void collect(std::vector<Event>& events, const Flight& flight);
  void look_at_row(Sequence& sequence, const Step& step, int position, int logit_row);
  Event next_token(Sequence& sequence, const Step& step, int logit_row, const std::optional<Sampled>& decided);
  bool needs_no_host(const Sequence& sequence) const;
  bool is_masked(const Sequence& sequence) const;
  bool takes_the_largest(const Sequence& sequence) const;
  bool is_chosen_by_device(const Sequence& sequence, const Step& step, int logit_row) const;
  void find_top_logits(const Flight& flight);
  void give_masks(const Flight& flight);
  void find_banned(const Sequence& sequence);
  SampleInput input_of(Sequence& sequence);
  std::optional<Sampled> scored_by_device(const Step& step, int logit_row, int n_logprobs, int32_t token) const;
  std::optional<Sampled> decide(Sequence& sequence, const Step& step, int logit_row);
  Sampled sample(Sequence& sequence, const Step& step, int logit_row);
  void fail_request(Event& event, const Step& step, const Sequence& sequence, const std::string& why);
  void stamp(Event& event, const Sequence& sequence) const;
  FinishReason finish_of(const Sequence& sequence, int32_t token) const;
  void finish(Event& event, FinishReason reason);

  EngineOptions options;
  std::unique_ptr<Backend> device;
  Ledger ledger;
  AdaptedBackend adapted;                              // around the ledger: passes go through it
  std::unique_ptr<Model> model;
  KvBudget budget;
  KvCache kv;
  Workspace workspace;
  std::array<Flight, 2> flights;
  int current_flight = 0;
  std::unique_ptr<PrefixTree> tree;                    // null: nothing is kept
  Scheduler scheduler;
  std::unique_ptr<SlicedPrefill> slices;               // null: prompts are not sliced
  Sampler sampler;
  MaskWorker masks;                                    // of the sequences that sample in this step
  std::vector<std::span<const uint32_t>> mask_of_row;  // as the device gets them
  std::vector<uint32_t> own_masks;                     // [logit row][words]: of them those that are not the worker's as they are
  std::vector<float> logits;                           // one row, on the host
  const WeightFile* file;                              // open as long as the model
  const Peak* peaks = nullptr;                         // what the logit rows of the step that landed last chose, where the device does
  bool runs_ahead = false;
  const TopLogits* tops = nullptr;                     // the largest of each of these rows, in steps in which somebody samples from them
  std::vector<TokenLogprob> top;                       // of one row
  std::vector<int32_t> eos_ids, banned;
  RopeRow rope_row;
  struct LoadedAdapter { std::shared_ptr<const Adapter> adapter; uint64_t serial; };
  std::map<std::string, LoadedAdapter> adapters;       // by name
  uint64_t next_adapter = 1;                           // so that one name loaded twice is two adapters to the prefix cache
  LogitsSink sink;
  std::vector<Event> pending;                          // what happened between steps
  std::unordered_set<uint64_t> told_of_restart;        // ids whose restarts in exact mode were logged once
  EngineStats stats;
  TimePoint last_collected;
  int64_t n_prefill_tokens_before = 0;                 // the last step
  uint64_t next_id = 1;
};

}  // namespace ridge
