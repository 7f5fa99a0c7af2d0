#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/prefix_tree.h"

namespace ridge {
namespace {

constexpr int kLeastChunk = 16;              // tokens: fewer at a time are a waste of the weights that are read for them
constexpr int kUnknownChunk = 64;            // tokens beside decodes while nothing is known about their cost
constexpr double kShortPrompt = 128;         // decode steps: a prompt that takes no longer is short beside its answer
constexpr double kMostSlowdown = 8;          // by short prompts
constexpr int kRefresh = 64;                 // steps after which decodes run alone once, to see what they cost

template <class Container>
auto with_id(Container& container, uint64_t id) {
  return std::find_if(container.begin(), container.end(), [&](const auto& s) { return s->id == id; });
}

bool is_decode(const Sequence& sequence) { return sequence.n_to_compute() == 1; }

}  // namespace

Scheduler::Scheduler(KvCache& kv, SchedulerLimits limits, PrefixTree* tree) : kv_(kv), limits_(limits), tree_(tree), costs_(kv) {
  CHECK(limits.max_seqs > 0 && limits.max_batch_tokens > 0 && limits.max_logits > 0);
  for (int slot = limits.max_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  running_.reserve(limits.max_seqs);
  plan_.grants.reserve(limits.max_seqs);
}

bool Scheduler::before(const Sequence& a, const Sequence& b) const {
  if (limits_.policy == Policy::priority && a.priority != b.priority) return a.priority < b.priority;
  return a.id < b.id;
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  sequence->state = SeqState::waiting;
  const auto at = std::upper_bound(waiting_.begin(), waiting_.end(), sequence, [&](const auto& a, const auto& b) { return before(*a, *b); });
  if (at == waiting_.begin()) no_room_ = false;
  waiting_.insert(at, std::move(sequence));
}

const Plan& Scheduler::plan() {
  plan_.grants.clear();
  plan_.out_of_memory.clear();
  plan_.slice.seconds = 0;
  plan_.shape = {};
  n_plans_++;
  Budget budget{limits_.max_batch_tokens, limits_.max_logits};
  const int64_t n_preemptions = n_preemptions_;
  // A grant may preempt those later in the order (running_ shrinks from the back) or, as the last, the sequence itself.
  for (size_t i = 0; i < running_.size(); ++i)
    if (is_decode(*running_[i])) grant(*running_[i], budget);
  limit_prefill(budget);
  // Where prefill has to wait for decodes, a long prompt would hold up short ones for long: every other step those that are nearly done go first.
  const bool shortest_first = budget.limited() && n_plans_ % 2 == 0;
  if (shortest_first && n_preemptions_ == n_preemptions) admit(budget);
  grant_prefills(budget, shortest_first);
  // What was just preempted for lack of pages would only be thrown out again.
  if (!shortest_first && n_preemptions_ == n_preemptions) admit(budget);
  if (plan_.grants.empty() && plan_.slice.sequence) plan_.slice.seconds = std::numeric_limits<double>::infinity();
  return plan_;
}

void Scheduler::grant_prefills(Budget& budget, bool shortest_first) {
  std::vector<Sequence*> prefills;
  for (const auto& sequence : running_)
    if (!is_decode(*sequence) && !has_grant(*sequence)) prefills.push_back(sequence.get());
  if (shortest_first) std::stable_sort(prefills.begin(), prefills.end(), [](const Sequence* a, const Sequence* b) { return a->n_to_compute() < b->n_to_compute(); });
  for (Sequence* sequence : prefills)
    if (sequence->state == SeqState::running) grant(*sequence, budget);
}

// Of those that could be worked on now: prompts of which what is not cached takes no longer than that, all in all.
int Scheduler::n_short_prefills(double seconds) const {
  int n = 0;
  const auto count = [&](const Sequence& s, int n_cached) {
    const int n_new = s.n_known() - n_cached;
    if (!is_decode(s) && s.waits_for == 0 && costs_.prefill_seconds(n_new, costs_.attended(n_cached, n_new)) <= seconds) n++;
  };
  for (const auto& s : running_) count(*s, s->n_cached);
  for (size_t i = 0; i < std::min(waiting_.size(), free_slots_.size()); ++i) {
    const Sequence& s = *waiting_[i];
    count(s, tree_ && tree_->shared() && s.reuses_prefix ? tree_->match(s.place, s.track.rope_class, s.tokens) : 0);
  }
  return n;
}

// How much time of this step prefill may take beside the decodes that were granted.
void Scheduler::limit_prefill(Budget& budget) {
  if (plan_.grants.empty() || (limits_.max_slowdown <= 0 && limits_.target_ttft <= 0 && limits_.target_tpot <= 0)) return;
  const int n_decodes = int(plan_.grants.size());
  const int n_prefills = int(running_.size()) - n_decodes + std::min(int(waiting_.size()), int(free_slots_.size()));
  if (n_prefills <= 0) return;
  if (!costs_.knows_decodes() || !costs_.knows_prefill()) {
    budget.tokens = std::min(budget.tokens, kUnknownChunk);
    return;
  }
  if (++n_since_decodes_only_ > kRefresh) {
    budget.seconds = 0;
    return;
  }
  const double decodes = costs_.decode_seconds(plan_.shape.n_decodes, plan_.shape.decode_attended);
  if (limits_.target_tpot > 0) {
    // As much as the target leaves; a tenth of it even if the decodes alone miss it, so that nobody waits forever.
    budget.seconds = std::max(0.9 * limits_.target_tpot - decodes, 0.1 * limits_.target_tpot);
  } else if (limits_.target_ttft > 0) {
    // So large a share that all who wait for their first token get it in time.
    const auto now = std::chrono::steady_clock::now();
    double share = 0;
    for_each([&](const Sequence& s) {
      if (is_decode(s) || s.n_generated() > 0) return;
      const double left = limits_.target_ttft - std::chrono::duration<double>(now - s.arrived).count();
      share += costs_.prefill_seconds(s.n_to_compute(), costs_.attended(s.track.n_computed, s.n_to_compute())) / std::max(left, 0.1 * limits_.target_ttft);
    });
    share = std::clamp(share, 0.2, 0.95);
    budget.seconds = decodes * share / (1 - share);
  } else {
    // The time is shared between those who wait and those who decode: one newcomer may slow them down so far, as many newcomers as decodes just as far, more of them further.
    // Several prompts that are short beside an answer soon go before everything: answers that start one by one would read the weights for a few tokens at a time.
    const int n_short = n_short_prefills(kShortPrompt * decodes);
    budget.seconds = decodes * std::max(limits_.max_slowdown * std::max(1.0, double(n_prefills) / n_decodes), std::min(limits_.max_slowdown * n_short * n_short, kMostSlowdown));
  }
}

bool Scheduler::reserve(Track& track, int n_tokens) { return tree_ ? tree_->reserve(track, n_tokens) : kv_.reserve(track, n_tokens); }

int Scheduler::chunk_of(const Sequence& sequence, const Budget& budget) const {
  int n = std::min(sequence.n_to_compute(), budget.tokens);
  while (n > 0 && sequence.n_logits_of(n) > budget.logits) n = sequence.wants_all_logits ? budget.logits : n - 1;
  return n;
}

// As many of n tokens as the time for prefill allows; 0: too few to be worth a part of this step, or enough for a slice.
int Scheduler::within_time(const Sequence& sequence, int n, const Budget& budget) const {
  if (n <= 1 || !budget.limited()) return n;
  const int fits = budget.seconds > 0 ? costs_.tokens_within(budget.seconds, sequence.track.n_computed, n) : 0;
  // What does not fit as a whole is better sliced: a slice ends by the clock, a chunk by what was thought it would take.
  if (limits_.slice_tokens > 0 && sequence.n_logits_of(n - 1) == 0) return fits >= n ? n : 0;
  if (fits >= std::min(n, kLeastChunk)) return fits;
  // The first one goes on nevertheless.
  return budget.seconds > 0 && plan_.shape.n_prefill == 0 ? std::min(n, kLeastChunk) : 0;
}

bool Scheduler::grant(Sequence& sequence, Budget& budget) {
  if (plan_.slice.sequence == &sequence) {
    plan_.slice.seconds = std::exchange(budget.seconds, budget.limited() ? 0 : budget.seconds);
    return true;
  }
  int n = chunk_of(sequence, budget);
  if (n > 1) {
    n = within_time(sequence, n, budget);
    if (n == 0) return begin_slice(sequence, budget);
  }
  if (n == 0) return true;
  while (!reserve(sequence.track, sequence.track.n_computed + n)) {
    Sequence& last = *running_.back();
    if (&last != &sequence) {
      take_back(last, budget);
      preempt(last);
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
  spend(sequence, n, budget);
  return true;
}

void Scheduler::spend(const Sequence& sequence, int n, Budget& budget) {
  const int first = sequence.track.n_computed;
  budget.tokens -= n;
  budget.logits -= sequence.n_logits_of(n);
  if (is_decode(sequence)) {
    plan_.shape.n_decodes++;
    plan_.shape.decode_attended += costs_.attended(first);
  } else {
    plan_.shape.n_prefill += n;
    plan_.shape.prefill_attended += costs_.attended(first, n);
    if (budget.limited()) budget.seconds -= costs_.prefill_seconds(n, costs_.attended(first, n));
  }
  plan_.grants.push_back({const_cast<Sequence*>(&sequence), n});
}

// A chunk of which one block takes no more than a third of the time there is.
bool Scheduler::begin_slice(Sequence& sequence, Budget& budget) {
  if (plan_.slice.sequence || limits_.slice_tokens == 0 || budget.seconds <= 0) return true;
  const int first = sequence.track.n_computed, n_most = std::min(limits_.slice_tokens, sequence.n_to_compute() - 1);
  const int n = std::max(1, costs_.tokens_within(budget.seconds * limits_.n_blocks / 3, first, n_most));
  if (sequence.n_logits_of(n) > 0) return true;                 // of a slice nobody sees the rows
  if (!reserve(sequence.track, first + n)) return true;         // decodes need the pages more than this one does
  plan_.slice = {&sequence, n, std::exchange(budget.seconds, 0), plan_.slice.serial + 1};
  return true;
}

bool Scheduler::plan_ahead(Plan& next, int n_ending) {
  const bool may_admit = !waiting_.empty() && (n_ending > 0 || (!free_slots_.empty() && !no_room_));
  if (may_admit || plan_.slice.sequence || next.grants.empty() || next.grants.size() + size_t(n_ending) != running_.size()) return false;
  const auto in_order = [&](const Grant& a, const Grant& b) { return before(*a.sequence, *b.sequence); };
  if (!std::is_sorted(next.grants.begin(), next.grants.end(), in_order)) std::sort(next.grants.begin(), next.grants.end(), in_order);
  next.shape = {.n_decodes = int(next.grants.size())};
  for (const Grant& grant : next.grants) {
    const int position = grant.sequence->n_known();
    if (!reserve(grant.sequence->track, position + 1)) return false;
    next.shape.decode_attended += costs_.attended(position);
  }
  n_plans_++;
  return true;
}

void Scheduler::observe_step(const Plan& plan, double seconds) {
  costs_.observe(plan.shape, seconds);
  if (plan.shape.n_prefill <= 0) n_since_decodes_only_ = 0;
}

void Scheduler::observe_slice(double seconds, int n_blocks) {
  const double share = double(n_blocks) / limits_.n_blocks;
  const int n = plan_.slice.n_tokens;
  costs_.observe_prefill(n * share, costs_.attended(plan_.slice.sequence->track.n_computed, n) * share, seconds);
}

void Scheduler::computed(Sequence& sequence, int n_context) {
  if (plan_.slice.sequence == &sequence) plan_.slice.sequence = nullptr;
  sequence.track.n_computed = n_context;
  if (tree_ && tree_->shared()) tree_->enter(sequence.track, sequence.place, sequence.tokens, sequence.n_prompt);
  kv_.release_unseen(sequence.track, n_context);
}

bool Scheduler::has_grant(const Sequence& sequence) const {
  return std::any_of(plan_.grants.begin(), plan_.grants.end(), [&](const Grant& g) { return g.sequence == &sequence; });
}

void Scheduler::take_back(Sequence& sequence, Budget& budget) {
  const auto grant = std::find_if(plan_.grants.begin(), plan_.grants.end(), [&](const Grant& g) { return g.sequence == &sequence; });
  if (grant == plan_.grants.end()) return;
  const int n = grant->n_tokens, first = sequence.track.n_computed;
  budget.tokens += n;
  budget.logits += sequence.n_logits_of(n);
  if (is_decode(sequence)) {
    plan_.shape.n_decodes--;
    plan_.shape.decode_attended -= costs_.attended(first);
  } else {
    plan_.shape.n_prefill -= n;
    plan_.shape.prefill_attended -= costs_.attended(first, n);
  }
  plan_.grants.erase(grant);
}

// Its pages go back; what is cached of them stays.
void Scheduler::leave_tree(Sequence& sequence, bool keep) {
  if (plan_.slice.sequence == &sequence) plan_.slice.sequence = nullptr;
  no_room_ = false;
  if (tree_) {
    if (keep && tree_->shared()) tree_->enter_all(sequence.track, sequence.place, sequence.tokens, sequence.n_prompt);
    tree_->leave(sequence.place);
  }
  kv_.release(sequence.track);
}

void Scheduler::preempt(Sequence& sequence) {
  const auto it = with_id(running_, sequence.id);
  CHECK(it != running_.end());
  if (tree_ && sequence.reuses_prefix) {
    tree_->enter_all(sequence.track, sequence.place, sequence.tokens, sequence.n_prompt);
    tree_->want_back(sequence.place);
    leave_tree(sequence, false);
  } else {
    leave_tree(sequence, true);
  }
  free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
  sequence.n_preempted++;
  n_preemptions_++;
  std::unique_ptr<Sequence> owner = std::move(*it);
  running_.erase(it);
  add(std::move(owner));
}

void Scheduler::restart(Sequence& sequence, int rope_class) {
  leave_tree(sequence, true);
  sequence.track.rope_class = rope_class;
}

std::unique_ptr<Sequence> Scheduler::remove(uint64_t id, bool keep) {
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
  leave_tree(*owner, keep);
  if (tree_ && !tree_->shared() && owner->n_preempted > 0) tree_->forget(owner->place);
  owner->state = SeqState::finished;
  return owner;
}

Sequence* Scheduler::find(uint64_t id) {
  if (const auto it = with_id(running_, id); it != running_.end()) return it->get();
  if (const auto it = with_id(waiting_, id); it != waiting_.end()) return it->get();
  return nullptr;
}

void Scheduler::for_each(const std::function<void(Sequence&)>& f) const {
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
