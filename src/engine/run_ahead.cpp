// Running ahead: while a step is under way, the next one is planned and submitted behind it, so that the device goes from one to the other without waiting for the host.
// It is done where the next step is sure to be: everybody who runs has caught up with its tokens and goes on with the largest logit, or one that is drawn, after its
// penalties, which the device chooses and looks up on its own (step.h); nobody waits for a mask, nobody could be admitted, no page has to be taken from anybody, and no rotary angles change. Who is
// known to end with the step under way (max_tokens, the context) is not part of the next one. Who turns out to have ended (a stop token, a cancellation), or to have a draw
// that the device left open, has had a row in it for nothing: nobody collects it. What that row wrote lies behind the last token in pages that only steps after it
// can get, for at the time of any other plan no step is under way.
//
//   step()          the host                                                   the device
//     n             plans n, submits it; plans n + 1, submits it; waits for n  n
//     n             collects n, hands out its events                           n + 1
//     n + 1         plans n + 2, submits it; waits for n + 1                   n + 1
//     n + 1         collects n + 1, hands out its events                       n + 2
#include <algorithm>

#include "engine/engine_state.h"

namespace ridge {

void Engine::State::run_ahead() {
  const Flight& now = current();
  Flight& next = behind();
  if (!runs_ahead || !now.is_under_way || now.plan.slice.sequence || !now.plan.out_of_memory.empty()) return;
  const auto began = std::chrono::steady_clock::now();
  next.plan.grants.clear();
  next.plan.out_of_memory.clear();
  next.plan.slice = {};
  int n_ending = 0;
  for (size_t i = 0; i < now.plan.grants.size(); ++i) {
    const StepSeq& rows = now.step.seqs()[i];
    Sequence* const sequence = now.plan.grants[i].sequence;
    if (!sequence) continue;
    if (!may_go_on_unseen(*sequence, now.step, rows)) return;
    if (ends_with_next_token(*sequence)) n_ending++;
    else next.plan.grants.push_back({.sequence = sequence, .n_tokens = 1, .follows = now.step.last_logit_row(rows)});
  }
  if (!scheduler.plan_ahead(next.plan, n_ending)) return;
  next.began = began;
  next.is_ahead = true;
  launch(next);
  stats.n_ahead++;
}

// Whether it has caught up with its tokens, and the host need not see more of the step under way than what its last row chose.
bool Engine::State::may_go_on_unseen(const Sequence& sequence, const Step& step, const StepSeq& rows) const {
  return rows.n_context == sequence.n_known() && !is_masked(sequence) && is_chosen_by_device(sequence, step, step.last_logit_row(rows)) &&
         !sequence.wants_all_logits && !sequence.wants_embedding && sequence.n_prompt_logprobs < 0 && (ends_with_next_token(sequence) || model->rope_class(sequence.n_known() + 1) == sequence.track.rope_class);
}

bool Engine::State::ends_with_next_token(const Sequence& sequence) const {
  const int max_tokens = sequence.params.max_tokens;
  return (max_tokens >= 0 && sequence.n_generated() + 1 >= max_tokens) || sequence.n_known() + 1 >= budget.max_context;
}

// Whether a Draw says how its next token is drawn, after its penalties, so that the device can do it.
bool Engine::State::may_be_drawn(const Sequence& sequence) const {
  const SamplingParams& p = sequence.params;
  return !p.greedy() && needs_no_host(sequence) && (p.top_k <= TopLogits::kMost || p.top_k >= model->n_vocab) && p.mirostat == 0 && p.top_n_sigma <= 0.0f &&
         p.typical_p >= 1.0f && p.xtc_probability <= 0.0f && p.dynatemp_range <= 0.0f;
}

void Engine::State::write_draws(Flight& flight) const {
  Step& step = flight.step;
  for (size_t i = 0; i < flight.plan.grants.size(); ++i) {
    Sequence& sequence = *flight.plan.grants[i].sequence;
    const StepSeq& rows = step.seqs()[i];
    for (int row = step.n_logits_before(rows.first_row); sequence.n_prompt_logprobs <= TopLogits::kMost && row < step.n_logits_before(rows.first_row + rows.n_rows); ++row)
      if (const int position = step.positions()[step.logit_rows()[row]]; sequence.scores(position)) step.set_draw(row, {.n_logprobs = sequence.n_prompt_logprobs, .scored = sequence.tokens[position + 1]});
    const bool is_drawn = may_be_drawn(sequence);
    if (rows.n_context < rows.n_known || sequence.params.max_tokens == 0 || (!is_drawn && !takes_the_largest(sequence))) continue;
    const SamplingParams& p = sequence.params;
    Draw draw;
    if (is_drawn)
      draw = {.u = uniform(sequence.seed, uint64_t(rows.n_known - sequence.n_prompt)), .sharpness = 1.0 / p.temperature, .top_p = p.top_p, .min_p = p.min_p, .top_k = p.top_k < model->n_vocab ? p.top_k : 0};
    const std::optional<Penalties> penalties = add_penalties(step, sequence, rows.n_known);
    if (!penalties) continue;                          // the host will apply them
    draw.penalties = *penalties;
    draw.n_logprobs = p.n_logprobs;
    draw.masked = is_masked(sequence);
    step.set_draw(step.last_logit_row(rows), draw);
  }
}

// Its row in the step under way, where it has one, is nobody's from now on.
bool Engine::State::withdraw(const Sequence& sequence) {
  if (!current().is_under_way) return false;
  for (Grant& grant : current().plan.grants)
    if (grant.sequence == &sequence) {
      grant.sequence = nullptr;
      return true;
    }
  return false;
}

}  // namespace ridge
