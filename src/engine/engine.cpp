#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "backend/op_check.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/compatibility.h"
#include "engine/device.h"
#include "engine/kv_budget.h"
#include "model/diagnosis.h"

namespace ridge {
namespace {

EngineOptions checked(EngineOptions options) {
  if (options.max_seqs < 1 || options.max_seqs > 4096) fail("max_seqs = {}: must be 1 to 4096", options.max_seqs);
  if (options.max_batch_tokens < 0 || options.max_batch_tokens > 65536) fail("max_batch_tokens = {}: must be 1 to 65536, or 0 (decided here)", options.max_batch_tokens);
  if (options.max_context < 0 || options.max_context > (1 << 28)) fail("context size {}: must be 0 (the model's own) to {}", options.max_context, 1 << 28);
  if (options.kv_bytes < 0) fail("kv_bytes = {}: must be 0 (decided here) or more", options.kv_bytes);
  if (options.page_size != 16 && options.page_size != 32 && options.page_size != 64) fail("page_size = {}: must be 16, 32 or 64", options.page_size);
  check_compatibility(options);
  options.device = resolve_device(options.device);
  options.kv_format = resolve_kv_format(options);
  if (options.max_batch_tokens == 0) options.max_batch_tokens = usual_batch_tokens(options.device);
  if (options.max_logits <= 0) options.max_logits = options.max_seqs;
  options.max_logits = std::min(options.max_logits, options.max_batch_tokens);
  return options;
}

// The state of recurrent layers is kept every 64 tokens, so their pages hold 64.
EngineOptions& settle_page_size(EngineOptions& options, const Model& model) {
  const bool recurrent = std::any_of(model.kv_specs.begin(), model.kv_specs.end(), [](const KvSpec& spec) { return spec.kind == KvKind::recurrent; });
  if (recurrent && options.page_size != 64) {
    log_info("The model has recurrent layers: KV pages hold 64 tokens, not {}.", options.page_size);
    options.page_size = 64;
  }
  return options;
}

StepLimits step_limits(const Model& model, const KvCache& kv, const EngineOptions& options, int max_context) {
  const int pages_per_table = (max_context + options.page_size - 1) / options.page_size;
  return {.max_tokens = options.max_batch_tokens, .max_seqs = options.max_seqs, .max_logits = options.max_logits,
          .max_pages = options.max_seqs * kv.n_groups() * pages_per_table, .n_groups = kv.n_groups(),
          .n_ropes = int(model.ropes.size()), .n_freqs = model.n_freqs(), .max_rope_rows = options.max_seqs};
}

}  // namespace

struct Engine::State {
  State(const Checkpoint& checkpoint, EngineOptions given)
      : options(checked(std::move(given))),
        device(make_backend(options)),
        ledger(*device, options.profile ? Ledger::Mode::time : Ledger::Mode::count),
        model(load_model(checkpoint, ledger, {options.activations, options.kv_format, options.rope_dynamic_exact, options.index_with_hindsight, options.progress})),
        budget(plan_kv(*model, settle_page_size(options, *model), free_memory(options.device))),
        kv(model->kv_specs, ledger, {options.page_size, budget.bytes, budget.max_context, options.max_seqs, options.max_batch_tokens}),
        workspace(*model, ledger, options.max_batch_tokens, options.max_logits),
        step(step_limits(*model, kv, options, budget.max_context)),
        scheduler(kv, {options.max_seqs, options.max_batch_tokens, options.max_logits}),
        sampler(model->n_vocab),
        logits(model->n_vocab),
        file(checkpoint.weights.get()),
        eos_ids(checkpoint.eos_ids) {
    std::erase_if(eos_ids, [&](int32_t id) { return id < 0 || id >= model->n_vocab; });
    rope_row = [this](Step& s, int row, int rope_class) { model->write_rope_row(s, row, rope_class); };
    peaks = ledger.watch_peaks(workspace.logits);
    check_ops();
  }

  void check_ops();

  void follow_rope_classes();
  void collect(std::vector<Event>& events, const Plan& plan);
  bool takes_the_largest(const Sequence& sequence) const;
  Event sample(Sequence& sequence, int logit_row);
  FinishReason finish_of(const Sequence& sequence, int32_t token) const;
  void finish(Event& event, FinishReason reason);

  EngineOptions options;
  std::unique_ptr<Backend> device;
  Ledger ledger;
  std::unique_ptr<Model> model;
  KvBudget budget;
  KvCache kv;
  Workspace workspace;
  Step step;
  Scheduler scheduler;
  Sampler sampler;
  std::vector<float> logits;                           // one row, on the host
  const WeightFile* file;                              // open as long as the model
  const Peak* peaks = nullptr;                         // of the step's logit rows, where the device finds them
  std::vector<int32_t> eos_ids, banned;
  RopeRow rope_row;
  LogitsSink sink;
  std::vector<Event> pending;                          // what happened between steps
  std::unordered_set<uint64_t> told_of_restart;        // ids whose restarts in exact mode were logged once
  EngineStats stats;
  uint64_t next_id = 1;
};

Engine::Engine(const Checkpoint& checkpoint, EngineOptions options) : state_(std::make_unique<State>(checkpoint, std::move(options))) {}
Engine::~Engine() = default;

std::vector<Event> Engine::step() {
  State& s = *state_;
  const auto start = std::chrono::steady_clock::now();
  std::vector<Event> events = std::exchange(s.pending, {});
  s.follow_rope_classes();
  const Plan& plan = s.scheduler.plan();
  if (!plan.grants.empty()) {
    fill_step(s.step, plan.grants, s.kv.page_size(), s.rope_row);
    forward(*s.model, s.ledger, s.step, s.workspace, s.kv.refs());
    s.stats.n_steps++;
  }
  s.collect(events, plan);
  s.stats.n_preemptions = s.scheduler.n_preemptions();
  s.stats.seconds_in_steps += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return events;
}

// A pass of one token over a backend that only looks: a model that the device has no kernels for is refused here, by name.
void Engine::State::check_ops() {
  OpCheck check(*device);
  step.add_seq({.n_rows = 1, .n_context = 1, .n_known = 1});
  step.add_token(0, 0, 0, true);
  forward(*model, check, step, workspace, kv.refs());
  step.clear();
  if (!check.missing().empty())
    fail("{} models need the op {}, for which {} has no kernel: use --device cpu", model->family, check.missing(), device->name());
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
      kv.release(track);
    }
    track.rope_class = now;
  });
}

void Engine::State::collect(std::vector<Event>& events, const Plan& plan) {
  int logit_row = 0;
  for (size_t i = 0; i < plan.grants.size(); ++i) {
    Sequence& sequence = *plan.grants[i].sequence;
    const StepSeq& rows = step.seqs()[i];
    const bool decoded = sequence.n_to_compute() == 1 && sequence.n_generated() > 0;
    (decoded ? stats.n_decode_tokens : stats.n_prefill_tokens) += rows.n_rows;
    sequence.track.n_computed = rows.n_context;
    kv.release_unseen(sequence.track, rows.n_context);
    for (; logit_row < step.n_logits() && step.logit_rows()[logit_row] < rows.first_row + rows.n_rows; ++logit_row) {
      if (!sequence.wants_all_logits || !sink) continue;
      ledger.download(logits.data(), workspace.logits.slice_rows(logit_row, 1));
      sink(sequence.id, step.positions()[step.logit_rows()[logit_row]], logits);
    }
    // Its last row is that of its last token, when it has caught up.
    if (sequence.n_to_compute() == 0) events.push_back(sample(sequence, logit_row - 1));
  }
  for (Sequence* sequence : plan.out_of_memory) {
    events.push_back({.id = sequence->id});
    finish(events.back(), FinishReason::context);
  }
}

// Whether nothing but the largest logit decides, so that the row need not come to the host.
bool Engine::State::takes_the_largest(const Sequence& sequence) const {
  const SamplingParams& p = sequence.params;
  return (p.temperature <= 0 || p.top_k == 1) && p.n_logprobs < 0 && p.logit_bias.empty() && p.repetition_penalty == 1.0f && p.presence_penalty == 0.0f && p.frequency_penalty == 0.0f &&
         sequence.n_generated() >= p.min_tokens;
}

Event Engine::State::sample(Sequence& sequence, int logit_row) {
  Event event{.id = sequence.id};
  const SamplingParams& params = sequence.params;
  if (params.max_tokens == 0) {
    finish(event, FinishReason::length);
    return event;
  }
  banned.clear();
  if (sequence.n_generated() < params.min_tokens) {
    banned = eos_ids;
    banned.insert(banned.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  }
  // What is not a number goes the long way, to the sampler's words for it.
  const Peak peak = peaks && takes_the_largest(sequence) ? peaks[logit_row] : Peak{-1, 0};
  if (peak.token >= 0 && std::isfinite(peak.logit)) {
    event.sampled.push_back({.token = peak.token});
  } else {
    ledger.download(logits.data(), workspace.logits.slice_rows(logit_row, 1));
    try {
      event.sampled.push_back(sampler.sample(logits, params, sequence.tokens, sequence.n_prompt, sequence.seed, uint64_t(sequence.n_generated()), banned));
    } catch (const Error& error) {
      event.error = fmt::format("request {}, after {} tokens: {}", sequence.id, sequence.n_known(), error.what());
      const bool damaged = std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x) || x == INFINITY; });
      if (damaged) event.error += "; " + diagnose_step(*model, *file, ledger, step, workspace, kv.refs());
      finish(event, FinishReason::error);
      return event;
    }
  }
  const int32_t token = event.sampled.back().token;
  if (sequence.n_generated() == 0) sequence.first_token = std::chrono::steady_clock::now();
  sequence.tokens.push_back(token);
  if (const FinishReason reason = finish_of(sequence, token); reason != FinishReason::none) finish(event, reason);
  return event;
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
  told_of_restart.erase(event.id);
  scheduler.remove(event.id);
}

uint64_t Engine::submit(Request request) {
  State& s = *state_;
  const SamplingParams& params = request.params;
  params.validate();
  if (request.prompt.empty()) fail("the prompt has no tokens: at least one is needed to continue from");
  for (const int32_t token : request.prompt)
    if (token < 0 || token >= s.model->n_vocab) fail("the prompt holds token {}: the model has tokens 0 to {}", token, s.model->n_vocab - 1);
  for (const auto& [token, bias] : params.logit_bias)
    if (token >= s.model->n_vocab) fail("logit_bias of token {}: the model has tokens 0 to {}", token, s.model->n_vocab - 1);
  for (const int32_t token : params.stop_token_ids)
    if (token >= s.model->n_vocab) fail("stop_token_ids holds {}: the model has tokens 0 to {}", token, s.model->n_vocab - 1);
  const int n_needed = params.max_tokens == 0 ? 0 : 1;
  if (request.prompt.size() + n_needed > size_t(s.budget.max_context))
    fail("the prompt has {} tokens and the context holds {}: shorten it, or ask for a larger context size", request.prompt.size(), s.budget.max_context);

  auto sequence = std::make_unique<Sequence>();
  sequence->id = s.next_id++;
  sequence->n_prompt = int(request.prompt.size());
  sequence->tokens = std::move(request.prompt);
  sequence->params = std::move(request.params);
  sequence->seed = sequence->params.seed ? *sequence->params.seed : random_seed();
  sequence->wants_all_logits = request.wants_all_logits;
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
  if (sequence && sequence->state == SeqState::running) state_->scheduler.preempt(*sequence);
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
void Engine::check_integrity() const { state_->kv.check_integrity(state_->scheduler.tracks()); }

}  // namespace ridge
