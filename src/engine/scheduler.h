// Who computes how many tokens in the next step. First come, first served: running sequences that decode go first, then the budget's rest goes to
// prefills in order of arrival, in chunks. When no page is left, the latest arrival is preempted (its pages dropped, to be recomputed).
// Nothing deadlocks: the earliest arrival can take every other one's pages, and when it is alone and still cannot grow, it is handed back as out of memory.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "kv/cache.h"
#include "sequence/batch.h"

namespace ridge {

struct SchedulerLimits {
  int max_seqs, max_batch_tokens;
  int max_logits;                                               // rows of logits a step may ask for, over all sequences
};

struct Plan {
  std::vector<Grant> grants;                                    // pages reserved; the earliest arrivals that decode first
  std::vector<Sequence*> out_of_memory;                         // alone and without pages to grow: the caller ends them
};

class Scheduler {
 public:
  Scheduler(KvCache& kv, SchedulerLimits limits);
  // Ids grow with arrival: they are the order of service.
  void add(std::unique_ptr<Sequence> sequence);
  // Nothing granted and nobody out of memory only when there is nothing to do. The reference is good until the next plan.
  const Plan& plan();
  void preempt(Sequence& sequence);
  std::unique_ptr<Sequence> remove(uint64_t id);               // releases its pages
  Sequence* find(uint64_t id);
  void for_each(const std::function<void(Sequence&)>& f);      // running, then waiting
  bool idle() const { return waiting_.empty() && running_.empty(); }
  int n_waiting() const { return int(waiting_.size()); }
  int n_running() const { return int(running_.size()); }
  int64_t n_preemptions() const { return n_preemptions_; }
  std::vector<const Track*> tracks() const;                     // of all live sequences

 private:
  struct Budget { int tokens, logits; };
  int chunk_of(const Sequence& sequence, Budget budget) const;  // tokens it may compute now; 0: none
  bool grant(Sequence& sequence, Budget& budget);               // false: it was preempted or is out of memory
  void take_back(Sequence& sequence, Budget& budget);           // its grant, if it has one in the plan
  void admit(Budget& budget);

  KvCache& kv_;
  SchedulerLimits limits_;
  std::deque<std::unique_ptr<Sequence>> waiting_;               // in order of arrival
  std::vector<std::unique_ptr<Sequence>> running_;              // in order of arrival
  std::vector<int> free_slots_;
  Plan plan_;
  int64_t n_preemptions_ = 0;
};

}  // namespace ridge
