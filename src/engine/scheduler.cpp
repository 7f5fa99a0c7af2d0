#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace ridge {
namespace {

bool arrived_before(const std::unique_ptr<Sequence>& a, const std::unique_ptr<Sequence>& b) { return a->id < b->id; }

template <class Container>
auto with_id(Container& container, uint64_t id) {
  return std::find_if(container.begin(), container.end(), [&](const auto& s) { return s->id == id; });
}

// Rows of logits that computing the next n tokens asks for.
int logits_of(const Sequence& sequence, int n) {
  if (sequence.wants_all_logits) return n;
  return n == sequence.n_to_compute() ? 1 : 0;
}

}  // namespace

Scheduler::Scheduler(KvCache& kv, SchedulerLimits limits) : kv_(kv), limits_(limits) {
  CHECK(limits.max_seqs > 0 && limits.max_batch_tokens > 0 && limits.max_logits > 0);
  for (int slot = limits.max_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  running_.reserve(limits.max_seqs);
  plan_.grants.reserve(limits.max_seqs);
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  sequence->state = SeqState::waiting;
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), sequence, arrived_before), std::move(sequence));
}

const Plan& Scheduler::plan() {
  plan_.grants.clear();
  plan_.out_of_memory.clear();
  Budget budget{limits_.max_batch_tokens, limits_.max_logits};
  const int64_t n_preemptions = n_preemptions_;
  // Decodes, then prefills. A grant may preempt later arrivals (running_ shrinks from the back) or, as the latest, the sequence itself.
  for (const bool decodes : {true, false})
    for (size_t i = 0; i < running_.size(); ++i) {
      Sequence& sequence = *running_[i];
      if ((sequence.n_to_compute() == 1) == decodes) grant(sequence, budget);
    }
  // What was just preempted for lack of pages would only be thrown out again.
  if (n_preemptions_ == n_preemptions) admit(budget);
  return plan_;
}

int Scheduler::chunk_of(const Sequence& sequence, Budget budget) const {
  int n = std::min(sequence.n_to_compute(), budget.tokens);
  while (n > 0 && logits_of(sequence, n) > budget.logits) n = sequence.wants_all_logits ? budget.logits : n - 1;
  return n;
}

bool Scheduler::grant(Sequence& sequence, Budget& budget) {
  int n = chunk_of(sequence, budget);
  if (n == 0) return true;
  while (!kv_.reserve(sequence.track, sequence.track.n_computed + n)) {
    Sequence& latest = *running_.back();
    if (&latest != &sequence) {
      take_back(latest, budget);
      preempt(latest);
    } else if (running_.size() > 1) {
      preempt(sequence);
      return false;
    } else if (n > 1) {
      n /= 2;
    } else {
      plan_.out_of_memory.push_back(&sequence);
      return false;
    }
  }
  budget.tokens -= n;
  budget.logits -= logits_of(sequence, n);
  plan_.grants.push_back({&sequence, n});
  return true;
}

void Scheduler::take_back(Sequence& sequence, Budget& budget) {
  const auto grant = std::find_if(plan_.grants.begin(), plan_.grants.end(), [&](const Grant& g) { return g.sequence == &sequence; });
  if (grant == plan_.grants.end()) return;
  budget.tokens += grant->n_tokens;
  budget.logits += logits_of(sequence, grant->n_tokens);
  plan_.grants.erase(grant);
}

void Scheduler::admit(Budget& budget) {
  while (!waiting_.empty() && !free_slots_.empty()) {
    Sequence& sequence = *waiting_.front();
    int n = chunk_of(sequence, budget);
    if (n == 0) return;
    while (!kv_.reserve(sequence.track, n)) {
      if (!running_.empty()) return;         // somebody will finish
      if (n == 1) {
        plan_.out_of_memory.push_back(&sequence);
        return;
      }
      n /= 2;
    }
    sequence.slot = free_slots_.back();
    free_slots_.pop_back();
    sequence.state = SeqState::running;
    budget.tokens -= n;
    budget.logits -= logits_of(sequence, n);
    plan_.grants.push_back({&sequence, n});
    running_.insert(std::upper_bound(running_.begin(), running_.end(), waiting_.front(), arrived_before), std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Scheduler::preempt(Sequence& sequence) {
  const auto it = with_id(running_, sequence.id);
  CHECK(it != running_.end());
  kv_.release(sequence.track);
  free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
  sequence.n_preempted++;
  n_preemptions_++;
  std::unique_ptr<Sequence> owner = std::move(*it);
  running_.erase(it);
  add(std::move(owner));
}

std::unique_ptr<Sequence> Scheduler::remove(uint64_t id) {
  std::unique_ptr<Sequence> owner;
  if (const auto it = with_id(running_, id); it != running_.end()) {
    owner = std::move(*it);
    running_.erase(it);
    free_slots_.push_back(owner->slot);
    owner->slot = -1;
  } else if (const auto at = with_id(waiting_, id); at != waiting_.end()) {
    owner = std::move(*at);
    waiting_.erase(at);
  } else {
    return nullptr;
  }
  kv_.release(owner->track);
  owner->state = SeqState::finished;
  return owner;
}

Sequence* Scheduler::find(uint64_t id) {
  if (const auto it = with_id(running_, id); it != running_.end()) return it->get();
  if (const auto it = with_id(waiting_, id); it != waiting_.end()) return it->get();
  return nullptr;
}

void Scheduler::for_each(const std::function<void(Sequence&)>& f) {
  for (const auto& sequence : running_) f(*sequence);
  for (const auto& sequence : waiting_) f(*sequence);
}

std::vector<const Track*> Scheduler::tracks() const {
  std::vector<const Track*> tracks;
  for (const auto& sequence : running_) tracks.push_back(&sequence->track);
  for (const auto& sequence : waiting_) tracks.push_back(&sequence->track);
  return tracks;
}

}  // namespace ridge
