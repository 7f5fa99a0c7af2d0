// The end of a step: rows of logits become tokens, and those the events that the caller sees.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/engine_state.h"
#include "model/diagnosis.h"

namespace ridge {
namespace {

bool is_damaged(std::span<const float> logits) {
  return std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x) || x == INFINITY; });
}

}  // namespace

void Engine::State::collect(std::vector<Event>& events, const Flight& flight) {
  const Plan& plan = flight.plan;
  const Step& step = flight.step;
  for (size_t i = 0; i < plan.grants.size(); ++i) {
    const StepSeq& rows = step.seqs()[i];
    const int last_logit_row = step.last_logit_row(rows);
    if (!plan.grants[i].sequence) continue;
    Sequence& sequence = *plan.grants[i].sequence;
    // Where another step is under way, or this one's tokens are known to the device alone, nobody can look at its logits: what they would be needed for is computed again.
    std::optional<Sampled> decided;
    if ((flight.is_ahead || current().is_under_way) && sequence.params.max_tokens != 0 && !(decided = decide(sequence, step, last_logit_row))) {
      sequence.wants_its_logits = true;
      withdraw(sequence);
      continue;
    }
    const bool decoded = sequence.n_to_compute() == 1 && sequence.n_generated() > 0;
    (decoded ? stats.n_decode_tokens : stats.n_prefill_tokens) += rows.n_rows;
    scheduler.computed(sequence, rows.n_context);
    Event failed{.id = sequence.id};
    try {
      for (int row = step.n_logits_before(rows.first_row); row <= last_logit_row; ++row) look_at_row(sequence, step, step.positions()[step.logit_rows()[row]], row);
    } catch (const Error& error) {
      fail_request(failed, step, sequence, error.what());
    }
    // Its last row is that of its last token, when it has caught up.
    if (!failed.error.empty()) events.push_back(std::move(failed));
    else if (sequence.n_to_compute() == 0) events.push_back(next_token(sequence, step, last_logit_row, decided));
  }
  for (Sequence* sequence : plan.out_of_memory) {
    events.push_back({.id = sequence->id});
    finish(events.back(), FinishReason::context);
  }
}

void Engine::State::ask_for_masks(const Plan& plan) {
  masks.clear();
  for (const Grant& grant : plan.grants)
    if (grant.sequence->filter && grant.n_tokens == grant.sequence->n_to_compute() && grant.sequence->params.max_tokens != 0) masks.add(grant.sequence->filter.get());
  masks.begin();
}

// A row that somebody wants as it is: the sink, or the score of the prompt's next token.
void Engine::State::look_at_row(Sequence& sequence, const Step& step, int position, int logit_row) {
  const bool for_sink = sequence.wants_all_logits && sink, scores = sequence.scores(position);
  if (!for_sink && !scores) return;
  if (scores) CHECK_EQ(position, sequence.first_unscored());
  if (const auto scored = scores && !for_sink ? scored_by_device(step, logit_row, sequence.n_prompt_logprobs, sequence.tokens[position + 1]) : std::nullopt) {
    sequence.prompt_logprobs.push_back(*scored);
    return;
  }
  ledger.download(logits.data(), workspace.logits.slice_rows(logit_row, 1));
  if (is_damaged(logits)) fail("the logits at position {} hold what is not a number", position);
  if (for_sink) sink(sequence.id, position, logits);
  if (!scores) return;
  sequence.prompt_logprobs.push_back(score_of(logits, sequence.tokens[position + 1], sequence.n_prompt_logprobs));
}

// Whether its row need not come to the host: nothing changes its logits but masks, biases and penalties, and nobody wants to see them.
bool Engine::State::needs_no_host(const Sequence& sequence) const {
  const SamplingParams& p = sequence.params;
  return !sequence.wants_its_logits && p.n_logprobs <= std::min(TopLogits::kMost, model->n_vocab) && p.dry_multiplier == 0.0f;
}

// Whether some tokens may not come next.
bool Engine::State::is_masked(const Sequence& sequence) const { return sequence.filter || sequence.n_generated() < sequence.params.min_tokens; }

bool Engine::State::takes_the_largest(const Sequence& sequence) const { return sequence.params.greedy() && needs_no_host(sequence); }

// Whether what the device says of its row is its next token: after its biases and penalties, if it has any, the largest or one that the step told it to draw.
bool Engine::State::is_chosen_by_device(const Sequence& sequence, const Step& step, int logit_row) const {
  const Draw& draw = step.draw_of()[logit_row];
  const bool is_penalised = !sequence.params.changes_logits() || draw.penalties.any();
  return peaks && !sequence.wants_its_logits && is_penalised && draw.n_logprobs == sequence.params.n_logprobs && bool(draw.masked) == is_masked(sequence) && (draw.any() || takes_the_largest(sequence));
}

// Where the device has not chosen, it can pick out the largest logits, from which most requests are sampled.
void Engine::State::find_top_logits(const Flight& flight) {
  bool wanted = false;
  for (size_t i = 0; i < flight.plan.grants.size() && !wanted; ++i) {
    const Grant& grant = flight.plan.grants[i];
    if (!grant.sequence || grant.n_tokens != grant.sequence->n_to_compute()) continue;
    const Sequence& sequence = *grant.sequence;
    wanted = !sequence.filter && !is_chosen_by_device(sequence, flight.step, flight.step.last_logit_row(flight.step.seqs()[i])) &&
             Sampler::top_may_decide(sequence.params, TopLogits::kMost);
  }
  tops = wanted ? ledger.top_logits(workspace.logits.slice_rows(0, flight.step.n_logits())) : nullptr;
}

// To the device that chooses: filters' masks without what would end an answer too early. Nothing is allowed where a filter failed, so that its row comes to the host, to its words for it.
void Engine::State::give_masks(const Flight& flight) {
  const size_t n_words = (size_t(model->n_vocab) + 31) / 32;
  mask_of_row.assign(size_t(flight.step.n_logits()), {});
  own_masks.resize(std::max(own_masks.size(), mask_of_row.size() * n_words));
  for (size_t i = 0; i < flight.plan.grants.size(); ++i) {
    const Sequence* const sequence = flight.plan.grants[i].sequence;
    const StepSeq& rows = flight.step.seqs()[i];
    if (!sequence || rows.n_context < rows.n_known) continue;      // in the middle of its prompt it has no row that chooses
    const int row = flight.step.last_logit_row(rows);
    if (!flight.step.draw_of()[row].masked) continue;
    std::span<const uint32_t>& mask = mask_of_row[size_t(row)];
    const std::span<uint32_t> own = std::span(own_masks).subspan(size_t(row) * n_words, n_words);
    try {
      if (sequence->filter) mask = masks.mask_of(sequence->filter.get());
    } catch (...) {
      std::fill(own.begin(), own.end(), 0u);
      mask = own;
      continue;
    }
    find_banned(*sequence);
    if (banned.empty()) continue;
    if (mask.empty()) std::fill(own.begin(), own.end(), ~0u);
    else std::copy(mask.begin(), mask.end(), own.begin());
    for (const int32_t token : banned) own[size_t(token / 32)] &= ~(1u << token % 32);
    mask = own;
  }
  ledger.give_masks(mask_of_row);
}

// What would end the answer before min_tokens.
void Engine::State::find_banned(const Sequence& sequence) {
  banned.clear();
  if (sequence.n_generated() >= sequence.params.min_tokens) return;
  banned = eos_ids;
  banned.insert(banned.end(), sequence.params.stop_token_ids.begin(), sequence.params.stop_token_ids.end());
}

SampleInput Engine::State::input_of(Sequence& sequence) {
  const SamplingParams& params = sequence.params;
  find_banned(sequence);
  return {.params = params, .history = sequence.tokens, .n_prompt = sequence.n_prompt, .seed = sequence.seed, .counter = uint64_t(sequence.n_generated()), .banned = banned,
          .allowed = sequence.filter ? masks.mask_of(sequence.filter.get()) : std::span<const uint32_t>{}, .mirostat_mu = &sequence.mirostat_mu};
}

// What a row's Score says of the token that it scores; nothing where it does not say all that is asked for.
std::optional<Sampled> Engine::State::scored_by_device(const Step& step, int logit_row, int n_logprobs, int32_t token) const {
  const Score* const scores = peaks && step.draw_of()[logit_row].scores() ? ledger.watched_scores() : nullptr;
  return scores ? score_of(scores[logit_row], token, n_logprobs) : std::nullopt;
}

// From what the device chose, or picked out of the row, where that is enough. What is not a number goes the long way, to the sampler's words for it.
std::optional<Sampled> Engine::State::decide(Sequence& sequence, const Step& step, int logit_row) {
  if (is_chosen_by_device(sequence, step, logit_row)) {
    const Peak& peak = peaks[logit_row];
    if (peak.token >= 0 && std::isfinite(peak.logit)) {
      const int n_logprobs = sequence.params.n_logprobs;
      return n_logprobs < 0 ? Sampled{.token = peak.token} : scored_by_device(step, logit_row, n_logprobs, peak.token);
    }
    if (peak.token < 0 && step.draw_of()[logit_row].any()) stats.n_left_open++;
  }
  if (!tops || tops[logit_row].n_found <= 0 || sequence.filter || sequence.wants_its_logits) return std::nullopt;
  top.clear();
  for (int i = 0; i < tops[logit_row].n_found; ++i) top.push_back({tops[logit_row].top[i].token, tops[logit_row].top[i].logit});
  return sampler.sample_top(top, input_of(sequence));
}

Sampled Engine::State::sample(Sequence& sequence, const Step& step, int logit_row) {
  if (const auto decided = decide(sequence, step, logit_row)) return *decided;
  ledger.download(logits.data(), workspace.logits.slice_rows(logit_row, 1));
  return sampler.sample(logits, input_of(sequence));
}

Event Engine::State::next_token(Sequence& sequence, const Step& step, int logit_row, const std::optional<Sampled>& decided) {
  Event event{.id = sequence.id};
  const SamplingParams& params = sequence.params;
  if (std::exchange(sequence.n_prompt_logprobs, -1) >= 0) event.prompt_logprobs = std::move(sequence.prompt_logprobs);
  if (sequence.wants_embedding && sequence.n_generated() == 0) {
    event.embedding.resize(size_t(model->d_model));
    ledger.download(event.embedding.data(), workspace.normed.slice_rows(logit_row, 1));
  }
  if (params.max_tokens == 0) {
    finish(event, FinishReason::length);
    return event;
  }
  try {
    event.sampled.push_back(decided ? *decided : sample(sequence, step, logit_row));
    if (sequence.filter) sequence.filter->accept(event.sampled.back().token);
  } catch (const std::exception& error) {    // a filter's may be of any kind, and is this request's alone
    fail_request(event, step, sequence, error.what());
    return event;
  }
  const int32_t token = event.sampled.back().token;
  if (sequence.n_generated() == 0) sequence.first_token = std::chrono::steady_clock::now();
  sequence.tokens.push_back(token);
  sequence.wants_its_logits = false;
  FinishReason reason = finish_of(sequence, token);
  if (reason == FinishReason::stop) event.stop_token = token;
  else if (sequence.filter && sequence.filter->done()) reason = FinishReason::stop;
  if (reason != FinishReason::none) finish(event, reason);
  else stamp(event, sequence);
  return event;
}

void Engine::State::fail_request(Event& event, const Step& step, const Sequence& sequence, const std::string& why) {
  event.sampled.clear();
  event.error = fmt::format("request {}, after {} tokens: {}", sequence.id, sequence.n_known(), why);
  if (is_damaged(logits)) event.error += "; " + diagnose_step(*model, *file, adapted, step, workspace, kv.refs());
  finish(event, FinishReason::error);
}

void Engine::State::stamp(Event& event, const Sequence& sequence) const {
  event.timing = {.arrived = sequence.arrived, .scheduled = sequence.scheduled, .first_token = sequence.first_token, .n_prompt = sequence.n_prompt,
                  .n_cached = sequence.n_cached, .n_generated = sequence.n_generated(), .n_preempted = sequence.n_preempted};
}

FinishReason Engine::State::finish_of(const Sequence& sequence, int32_t token) const {
  const SamplingParams& params = sequence.params;
  const auto holds = [&](const std::vector<int32_t>& ids) { return std::find(ids.begin(), ids.end(), token) != ids.end(); };
  if ((!params.ignore_eos && holds(eos_ids)) || holds(params.stop_token_ids)) return FinishReason::stop;
  if (params.max_tokens >= 0 && sequence.n_generated() >= params.max_tokens) return FinishReason::length;
  if (sequence.n_known() >= budget.max_context) return FinishReason::context;
  return FinishReason::none;
}

void Engine::State::finish(Event& event, FinishReason reason) {
  event.finish = reason;
  if (const Sequence* const sequence = scheduler.find(event.id)) stamp(event, *sequence);
  event.timing.finished = std::chrono::steady_clock::now();
  told_of_restart.erase(event.id);
  std::unique_ptr<Sequence> gone = scheduler.remove(event.id, reason != FinishReason::error);
  if (gone && withdraw(*gone)) current().gone.push_back(std::move(gone));
}

}  // namespace ridge
