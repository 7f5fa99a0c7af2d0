// Who of those that wait is taken next, and what of their prompts need not be computed.
#include <algorithm>
#include <utility>

#include "engine/scheduler.h"
#include "kv/prefix_node.h"
#include "kv/prefix_tree.h"

namespace ridge {
namespace {

constexpr int kWorthAwaiting = 16;           // tokens that another is computing right now
constexpr size_t kCandidates = 64;           // of the queue that are compared with one another
constexpr size_t kUnknownRunning = 4;        // sequences at once while nothing is known about their cost and there is a target for it

}  // namespace

void Scheduler::admit(Budget& budget) {
  if (waiting_.empty() || free_slots_.empty() || no_room_) return;
  size_t n_awaiting = 0;                     // they have a right to a slot
  for (Sequence* sequence : in_order_of_admission(free_slots_.size())) {
    if (free_slots_.size() <= n_awaiting || budget.tokens <= 0 || budget.seconds <= 0 || too_slow_with_another()) return;
    if (awaits_another(*sequence)) n_awaiting++;
    else if (!admit(*sequence, budget)) return;
  }
}

// The first n_most of the queue, as the policy wants them.
std::vector<Sequence*> Scheduler::in_order_of_admission(size_t n_most) {
  const bool by_prefix = limits_.policy == Policy::longest_prefix && tree_, by_hope = limits_.target_ttft > 0;
  std::vector<Sequence*> order;
  for (size_t i = 0; i < std::min(waiting_.size(), by_prefix || by_hope ? std::max(n_most, kCandidates) : n_most); ++i) order.push_back(waiting_[i].get());
  if (!by_prefix && !by_hope) return order;
  struct Rank { bool is_due, is_late; int n_cached; Sequence* sequence; };
  std::vector<Rank> ranks;
  const auto now = std::chrono::steady_clock::now();
  for (Sequence* s : order) {
    // Who cannot get a first token in time any more lets those go first who can.
    const double needed = costs_.prefill_seconds(s->n_to_compute(), costs_.attended(0, s->n_to_compute()));
    const bool is_late = by_hope && std::chrono::duration<double>(now - s->arrived).count() + needed > limits_.target_ttft;
    ranks.push_back({s->n_overtaken >= kMostOvertakes, is_late, by_prefix && s->reuses_prefix ? tree_->match(s->place, s->track.rope_class, s->tokens) : 0, s});
  }
  std::stable_sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) {
    if (a.is_due != b.is_due) return a.is_due;
    if (a.is_due) return false;
    return a.is_late != b.is_late ? b.is_late : a.n_cached > b.n_cached;
  });
  for (size_t i = 0; i < ranks.size(); ++i) order[i] = ranks[i].sequence;
  return order;
}

bool Scheduler::too_slow_with_another() const {
  if (limits_.target_tpot <= 0 || running_.empty()) return false;
  if (!costs_.knows_decodes()) return running_.size() >= kUnknownRunning;
  const StepShape& shape = plan_.shape;
  const double attended = shape.n_decodes > 0 ? shape.decode_attended / shape.n_decodes : 0;
  const int n = int(running_.size()) + 1;
  return costs_.decode_seconds(n, attended * n) > limits_.target_tpot;
}

// Whether a running sequence is about to compute what this one needs next: then it waits until it can be had from the cache.
bool Scheduler::awaits_another(Sequence& sequence) {
  if (!tree_ || !tree_->shared() || !sequence.reuses_prefix) return false;
  const auto same_key = [&](const Sequence& other) { return other.track.rope_class == sequence.track.rope_class && other.place.key == sequence.place.key; };
  if (sequence.waits_for != 0) {
    const auto other = std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s->id == sequence.waits_for; });
    if (other != running_.end() && same_key(**other) && (*other)->track.n_computed < sequence.n_awaited) return true;
    sequence.waits_for = 0;
  }
  int n_there = tree_->match(sequence.place, sequence.track.rope_class, sequence.tokens), n_ready = n_there, n_coming = 0;
  Sequence *ready = nullptr, *coming = nullptr;
  for (const auto& other : running_) {
    if (!same_key(*other)) continue;
    const int n_common = std::min(common_length(other->tokens, sequence.tokens), sequence.n_known() - 1);
    if (const int n = std::min(n_common, other->track.n_computed); n > n_ready) n_ready = n, ready = other.get();
    if (n_common > n_coming) n_coming = n_common, coming = other.get();
  }
  if (n_coming >= n_ready + kWorthAwaiting && coming->track.n_computed < n_coming) {
    sequence.waits_for = coming->id;
    sequence.n_awaited = n_coming;
    return true;
  }
  // Computed, but in a page that is not full yet.
  if (ready) tree_->enter_all(ready->track, ready->place, ready->tokens, ready->n_prompt);
  return false;
}

bool Scheduler::admit(Sequence& sequence, Budget& budget) {
  const bool is_first_time = sequence.scheduled == decltype(sequence.scheduled){};
  const auto give_up = [&] {
    if (tree_) tree_->leave(sequence.place);
    kv_.release(sequence.track);
    return false;
  };
  if (tree_ && sequence.reuses_prefix && (tree_->shared() || sequence.n_preempted > 0)) {
    const int n = tree_->adopt(sequence.track, sequence.place, sequence.tokens, tree_->shared() && !std::exchange(sequence.was_looked_up, true));
    if (is_first_time) sequence.n_cached = n;
  }
  const int n_there = sequence.track.n_computed, n_fits = chunk_of(sequence, budget);
  int n = within_time(sequence, n_fits, budget);
  if (n_fits == 0) return give_up();
  while (n > 0 && !reserve(sequence.track, n_there + n)) {
    if (running_.empty() && n > 1) {
      n /= 2;
      continue;
    }
    if (running_.empty()) plan_.out_of_memory.push_back(&sequence);
    else no_room_ = true;                    // somebody will finish
    return give_up();
  }
  if (tree_ && !tree_->shared() && sequence.n_preempted > 0) {
    tree_->leave(sequence.place);
    tree_->forget(sequence.place);
  }
  for (const auto& other : waiting_)
    if (other->id < sequence.id && other->waits_for == 0) other->n_overtaken++;
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  sequence.state = SeqState::running;
  sequence.waits_for = 0;
  if (is_first_time) sequence.scheduled = std::chrono::steady_clock::now();
  const auto at = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& s) { return s.get() == &sequence; });
  std::unique_ptr<Sequence> owner = std::move(*at);
  waiting_.erase(at);
  running_.insert(std::upper_bound(running_.begin(), running_.end(), owner, [&](const auto& a, const auto& b) { return before(*a, *b); }), std::move(owner));
  if (n > 0) spend(sequence, n, budget);
  else begin_slice(sequence, budget);
  return true;
}

}  // namespace ridge
