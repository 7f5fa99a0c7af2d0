#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/engine_state.h"

namespace ridge {

Engine::Engine(const Checkpoint& checkpoint, EngineOptions options) : state_(std::make_unique<State>(checkpoint, std::move(options))) {}
Engine::~Engine() = default;

std::vector<Event> Engine::step() {
  State& s = *state_;
  std::vector<Event> events = std::exchange(s.pending, {});
  if (s.current().is_under_way && s.current().is_deserted()) s.land(s.current());
  Flight& flight = s.current();
  if (!flight.is_under_way) {
    flight.began = std::chrono::steady_clock::now();
    flight.is_ahead = false;
    s.follow_rope_classes();
    flight.plan = s.scheduler.plan();
    s.ask_for_masks(flight.plan);
    s.launch(flight);
  }
  s.run_ahead();
  s.masks.wait();
  if (flight.is_under_way && flight.step.waits()) s.give_masks(flight);
  s.land(flight);
  s.find_top_logits(flight);
  s.collect(events, flight);
  s.account(flight);
  return events;
}

void Engine::State::launch(Flight& flight) {
  if (flight.plan.grants.empty()) return;
  fill_step(flight.step, flight.plan.grants, kv.page_size(), rope_row);
  if (runs_ahead) write_draws(flight);
  follow_adapters(flight);
  const Traffic before = ledger.total();
  submit_forward(*model, adapted, flight.step, workspace, kv.refs());
  const Traffic after = ledger.total();
  flight.traffic = {.weight_bytes = after.weight_bytes - before.weight_bytes, .kv_bytes = after.kv_bytes - before.kv_bytes,
                    .activation_bytes = after.activation_bytes - before.activation_bytes, .flops = after.flops - before.flops};
  flight.is_under_way = true;
}

// From now on the other one is the current one.
void Engine::State::land(Flight& flight) {
  if (flight.is_under_way) adapted.wait();
  flight.is_under_way = false;
  flight.gone.clear();
  current_flight = 1 - current_flight;
}

// A step that was submitted early takes from the collection of the one before it to its own.
void Engine::State::account(const Flight& flight) {
  const auto since = [](TimePoint from) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count(); };
  const Plan& plan = flight.plan;
  const TimePoint from = std::max(flight.began, std::exchange(last_collected, std::chrono::steady_clock::now()));
  if (!plan.grants.empty()) {
    stats.n_steps++;
    scheduler.observe_step(plan, since(from));
  }
  if (const Slice& slice = scheduler.slice(); slice.sequence && slice.seconds > 0) run_slice(slice);
  stats.n_preemptions = scheduler.n_preemptions();
  const double seconds = since(from);
  stats.seconds_in_steps += seconds;
  account_for_decoding(flight, seconds);
}

void Engine::State::account_for_decoding(const Flight& flight, double seconds) {
  const Plan& plan = flight.plan;
  const bool prefilled = std::exchange(n_prefill_tokens_before, stats.n_prefill_tokens) != stats.n_prefill_tokens;
  if (prefilled || plan.grants.empty() || plan.slice.seconds > 0) return;
  EngineStats::Decoding& d = stats.decoding;
  d.n_tokens += int64_t(plan.grants.size());
  d.traffic.weight_bytes += flight.traffic.weight_bytes;
  d.traffic.kv_bytes += flight.traffic.kv_bytes;
  d.traffic.activation_bytes += flight.traffic.activation_bytes;
  d.traffic.flops += flight.traffic.flops;
  d.seconds += seconds;
}

void Engine::State::run_slice(const Slice& slice) {
  adapted.follow({});
  if (const Adapter* const adapter = slice.sequence->adapter.get()) adapted.follow({{0, slice.n_tokens, adapter}});
  const SlicedPrefill::Progress progress = slices->run(slice, rope_row);
  scheduler.observe_slice(progress.seconds, progress.n_blocks);
  if (!progress.is_through) return;
  stats.n_prefill_tokens += slice.n_tokens;
  scheduler.computed(*slice.sequence, slice.sequence->track.n_computed + slice.n_tokens);
}

// The angles follow the number of tokens known; when their class changes, what was computed with the old ones is computed again.
void Engine::State::follow_rope_classes() {
  scheduler.for_each([&](Sequence& sequence) {
    const int now = model->rope_class(sequence.n_known());
    Track& track = sequence.track;
    if (now == track.rope_class) return;
    if (track.n_computed > 0) {
      stats.n_rope_restarts++;
      if (!model->restarts_every_token && (!options.rope_dynamic_exact || told_of_restart.insert(sequence.id).second))
        log_info("Request {}: with {} tokens the rotary angles change, and the tokens so far are computed again{}.", sequence.id, sequence.n_known(),
                 options.rope_dynamic_exact ? " from now on with every token" : "");
    }
    scheduler.restart(sequence, now);
  });
}

void Engine::check(const Request& request) const {
  const State& s = *state_;
  const SamplingParams& params = request.params;
  params.validate();
  if (request.prompt.empty()) fail("the prompt has no tokens: at least one is needed to continue from");
  for (const int32_t token : request.prompt)
    if (token < 0 || token >= s.model->n_vocab) fail("the prompt holds token {}: the model has tokens 0 to {}", token, s.model->n_vocab - 1);
  for (const auto& [token, bias] : params.logit_bias)
    if (token >= s.model->n_vocab) fail("logit_bias of token {}: the model has tokens 0 to {}", token, s.model->n_vocab - 1);
  for (const int32_t token : params.stop_token_ids)
    if (token >= s.model->n_vocab) fail("stop_token_ids holds {}: the model has tokens 0 to {}", token, s.model->n_vocab - 1);
  if (request.n_prompt_logprobs < -1 || request.n_prompt_logprobs > 1024) fail("prompt_logprobs = {}: must be -1 (none) to 1024", request.n_prompt_logprobs);
  if (request.wants_embedding && params.max_tokens != 0) fail("max_tokens = {}: an embedding is of the prompt alone, so it must be 0", params.max_tokens);
  const int n_needed = params.max_tokens == 0 ? 0 : 1;
  if (request.prompt.size() + n_needed > size_t(s.budget.max_context))
    fail("the prompt has {} tokens and the context holds {}: shorten it, or ask for a larger context size", request.prompt.size(), s.budget.max_context);
}

uint64_t Engine::submit(Request request) {
  check(request);
  State& s = *state_;
  auto sequence = std::make_unique<Sequence>();
  std::string adapter_key;
  if (!request.adapter.empty()) {
    const auto found = s.adapters.find(request.adapter);
    if (found == s.adapters.end()) fail("there is no adapter '{}': load it first", request.adapter);
    sequence->adapter = found->second.adapter;
    adapter_key = fmt::format("{}#{}", found->second.serial, request.adapter);
  }
  sequence->id = s.next_id++;
  sequence->n_prompt = int(request.prompt.size());
  sequence->tokens = std::move(request.prompt);
  sequence->params = std::move(request.params);
  sequence->seed = sequence->params.seed ? *sequence->params.seed : random_seed();
  sequence->wants_all_logits = request.wants_all_logits;
  sequence->wants_embedding = request.wants_embedding;
  sequence->n_prompt_logprobs = request.n_prompt_logprobs;
  sequence->reuses_prefix = !request.wants_all_logits && request.n_prompt_logprobs < 0;
  sequence->filter = std::move(request.filter);
  sequence->mirostat_mu = 2 * sequence->params.mirostat_tau;
  sequence->priority = request.priority;
  sequence->place.key = s.options.prefix_cache ? prefix_key(adapter_key, request.cache_salt) : std::to_string(sequence->id);
  sequence->arrived = std::chrono::steady_clock::now();
  const uint64_t id = sequence->id;
  s.scheduler.add(std::move(sequence));
  return id;
}

void Engine::cancel(uint64_t id) {
  if (!state_->scheduler.find(id)) return;
  state_->pending.push_back({.id = id});
  state_->finish(state_->pending.back(), FinishReason::cancelled);
}

void Engine::preempt(uint64_t id) {
  Sequence* const sequence = state_->scheduler.find(id);
  if (!sequence || sequence->state != SeqState::running) return;
  state_->withdraw(*sequence);
  state_->scheduler.preempt(*sequence);
}

bool Engine::idle() const { return state_->scheduler.idle() && state_->pending.empty(); }
void Engine::discard_events() { state_->pending.clear(); }
void Engine::set_logits_sink(LogitsSink sink) { state_->sink = std::move(sink); }
const Model& Engine::model() const { return *state_->model; }
const KvCache& Engine::kv() const { return state_->kv; }
Backend& Engine::backend() { return *state_->device; }
Ledger& Engine::ledger() { return state_->ledger; }
const EngineStats& Engine::stats() const { return state_->stats; }
int Engine::max_context() const { return state_->budget.max_context; }
const EngineOptions& Engine::options() const { return state_->options; }

std::vector<LiveRequest> Engine::live() const {
  std::vector<LiveRequest> live;
  state_->scheduler.for_each([&](const Sequence& s) {
    live.push_back({.id = s.id, .state = s.state, .slot = s.slot, .n_prompt = s.n_prompt, .n_cached = s.n_cached, .n_computed = s.track.n_computed,
                    .n_generated = s.n_generated(), .n_preempted = s.n_preempted, .priority = s.priority});
  });
  return live;
}

PrefixReport Engine::cache_report() const { return state_->tree ? state_->tree->report() : PrefixReport{.page_size = state_->kv.page_size()}; }
int64_t Engine::flush_cache() { return state_->tree ? state_->tree->flush() : 0; }

void Engine::check_integrity() const {
  const State& s = *state_;
  if (s.tree) s.tree->check_integrity();
  s.kv.check_integrity(s.scheduler.tracks(), s.tree ? s.tree->held() : std::vector<std::vector<int32_t>>{});
}

}  // namespace ridge
