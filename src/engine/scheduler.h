// Who computes how many tokens in the next step. Running sequences that decode go first, then the budget's rest goes to prefills, in chunks, and to those that
// wait, in the order of the policy. When no page is left, the prefix cache gives up what nobody uses; then the last in that order is preempted (its pages stay
// cached while there is room, go to host memory, or are computed again).
//
// Decodes are not stalled: while some run, prefill gets no more time of a step than max_slowdown or the targets allow, by what steps were seen to cost. A prompt
// that does not fit into that time is computed in slices: some layers of a chunk with every step (Plan::slice), or in small chunks where the device cannot do that.
//
// Nothing deadlocks: the first in the order can take every other one's pages, and when it is alone and still cannot grow, it is handed back as out of memory.
#pragma once
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "engine/step_cost.h"
#include "kv/cache.h"
#include "sequence/batch.h"

namespace ridge {

class PrefixTree;

// first_come; smallest Sequence::priority first; longest cached prefix first, where nobody is overtaken more than kMostOvertakes times.
enum class Policy : uint8_t { first_come, priority, longest_prefix };

struct SchedulerLimits {
  int max_seqs, max_batch_tokens;
  int max_logits;                                               // rows of logits a step may ask for, over all sequences
  Policy policy = Policy::first_come;
  double max_slowdown = 0;                                      // of decodes by prefill in the same step: 0.8 lets it take 1.8 times as long; 0: no limit
  double target_ttft = 0, target_tpot = 0;                      // seconds; 0: none
  int slice_tokens = 0;                                         // most tokens of a slice; 0: the caller cannot run slices
  int n_blocks = 1;                                             // of the model: a slice is at least one
};

// A chunk of which some blocks are run with each step until it is through; without logits. The same serial number: the same chunk as in the last plan.
struct Slice {
  Sequence* sequence = nullptr;                                 // null: none
  int n_tokens = 0;
  double seconds = 0;                                           // that it may take now; at least one block is run
  uint64_t serial = 0;
};

struct Plan {
  std::vector<Grant> grants;                                    // pages reserved; decodes first
  StepShape shape;                                              // of the grants
  Slice slice;                                                  // of a sequence that has no grant
  std::vector<Sequence*> out_of_memory;                         // alone and without pages to grow: the caller ends them
};

class Scheduler {
 public:
  static constexpr int kMostOvertakes = 16;
  Scheduler(KvCache& kv, SchedulerLimits limits, PrefixTree* tree = nullptr);
  // Ids grow with arrival: they are the order of service.
  void add(std::unique_ptr<Sequence> sequence);
  // Nothing granted, no slice and nobody out of memory only when there is nothing to do. The reference is good until the next plan.
  const Plan& plan();
  // The plan of a step that follows one under way, of which the grants are given: puts them in order, and reserves a page where one is needed. False: somebody
  // could be admitted, not all who run are among them or end now (n_ending), or there are no pages unless somebody is preempted; then the next plan() is to decide.
  [[nodiscard]] bool plan_ahead(Plan& next, int n_ending);
  // What a plan's step took, without its slice; and a slice of the last plan: how many of its blocks were run.
  void observe_step(const Plan& plan, double seconds);
  void observe_slice(double seconds, int n_blocks);
  // Tokens [0, n_context) of a granted sequence, or of a slice that is through, are in KV: gives back what no later one sees.
  void computed(Sequence& sequence, int n_context);
  void preempt(Sequence& sequence);
  void restart(Sequence& sequence, int rope_class);            // what it has computed is stale
  std::unique_ptr<Sequence> remove(uint64_t id, bool keep = true);      // releases its pages; keep: what it computed may be cached
  Sequence* find(uint64_t id);
  void for_each(const std::function<void(Sequence&)>& f) const;         // running, then waiting
  bool idle() const { return waiting_.empty() && running_.empty(); }
  int n_waiting() const { return int(waiting_.size()); }
  int n_running() const { return int(running_.size()); }
  const Slice& slice() const { return plan_.slice; }            // of the last plan, as long as its sequence is there
  int64_t n_preemptions() const { return n_preemptions_; }
  std::vector<const Track*> tracks() const;                     // of all live sequences
  const StepCost& costs() const { return costs_; }

 private:
  struct Budget {
    int tokens, logits;
    double seconds = std::numeric_limits<double>::infinity();   // for prefill
    bool limited() const { return seconds < std::numeric_limits<double>::infinity(); }
  };
  bool before(const Sequence& a, const Sequence& b) const;      // in the order of service
  bool reserve(Track& track, int n_tokens);
  int n_short_prefills(double seconds) const;
  int chunk_of(const Sequence& sequence, const Budget& budget) const;   // tokens it may compute now; 0: none
  int within_time(const Sequence& sequence, int n, const Budget& budget) const;
  bool grant(Sequence& sequence, Budget& budget);               // false: it was preempted or is out of memory
  bool begin_slice(Sequence& sequence, Budget& budget);
  void spend(const Sequence& sequence, int n, Budget& budget);
  void take_back(Sequence& sequence, Budget& budget);           // its grant, if it has one in the plan
  bool has_grant(const Sequence& sequence) const;
  void limit_prefill(Budget& budget);
  void grant_prefills(Budget& budget, bool shortest_first);
  void leave_tree(Sequence& sequence, bool keep);

  // admission.cpp
  void admit(Budget& budget);
  bool admit(Sequence& sequence, Budget& budget);
  std::vector<Sequence*> in_order_of_admission(size_t n_most);
  bool awaits_another(Sequence& sequence);
  bool too_slow_with_another() const;

  KvCache& kv_;
  SchedulerLimits limits_;
  PrefixTree* tree_;                                            // may be null
  StepCost costs_;
  std::deque<std::unique_ptr<Sequence>> waiting_;               // in the order of service
  std::vector<std::unique_ptr<Sequence>> running_;              // in the order of service
  std::vector<int> free_slots_;
  Plan plan_;
  int64_t n_preemptions_ = 0, n_plans_ = 0;
  int n_since_decodes_only_ = 0;                                // steps since the last one whose cost tells what decodes alone take
  bool no_room_ = false;                                        // for whoever is first in the queue, until a sequence gives back pages
};

}  // namespace ridge
