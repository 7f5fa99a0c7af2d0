#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>
#include <utility>

#include "backend/op_check.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/compatibility.h"
#include "engine/device.h"
#include "engine/kv_budget.h"
#include "engine/mask_worker.h"
#include "engine/sliced_prefill.h"
#include "kv/prefix_tree.h"
#include "model/adapter.h"
#include "model/diagnosis.h"

namespace ridge {
namespace {

// A GPU replays whole steps, and is fast enough to share them in tokens.
bool can_slice(const EngineOptions& options) {
  return options.device != "cuda" && options.max_seqs > 1 && (options.max_slowdown > 0 || options.target_ttft_ms > 0 || options.target_tpot_ms > 0);
}

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

// A cached prefix is of use only where what was computed for a token stays true when more of them are known.
EngineOptions& settle_prefix_cache(EngineOptions& options, const Model& model) {
  if (options.prefix_cache && (model.restarts_every_token || options.rope_dynamic_exact)) {
    log_info("The prefix cache is off: the model is computed anew with every token.");
    options.prefix_cache = false;
  }
  return options;
}

Policy policy_of(const std::string& name) {
  if (name == "fcfs") return Policy::first_come;
  if (name == "priority") return Policy::priority;
  if (name == "lpm") return Policy::longest_prefix;
  fail("scheduling policy '{}' is unknown: there are fcfs, priority and lpm", name);
}

SchedulerLimits scheduler_limits(const EngineOptions& options, const Model& model) {
  return {.max_seqs = options.max_seqs, .max_batch_tokens = options.max_batch_tokens, .max_logits = options.max_logits, .policy = policy_of(options.policy),
          .max_slowdown = options.max_slowdown, .target_ttft = options.target_ttft_ms / 1e3, .target_tpot = options.target_tpot_ms / 1e3,
          .slice_tokens = can_slice(options) ? SlicedPrefill::kTokens : 0, .n_blocks = int(model.blocks.size())};
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
        adapted(ledger),
        model(load_model(checkpoint, adapted, {options.activations, options.kv_format, options.rope_dynamic_exact, options.index_with_hindsight, options.progress})),
        budget(plan_kv(*model, settle_prefix_cache(settle_page_size(options, *model), *model), free_memory(options.device))),
        kv(model->kv_specs, ledger, {.page_size = options.page_size, .max_bytes = budget.bytes, .max_context = budget.max_context, .max_seqs = options.max_seqs,
                                     .max_step_tokens = options.max_batch_tokens, .n_kept_ends = options.prefix_cache ? options.max_seqs : 0,
                                     .copy_page = page_copy_of(options.device)}),
        workspace(*model, ledger, options.max_batch_tokens, options.max_logits),
        step(step_limits(*model, kv, options, budget.max_context)),
        tree(make_tree()),
        scheduler(kv, scheduler_limits(options, *model), tree.get()),
        slices(can_slice(options) ? std::make_unique<SlicedPrefill>(*model, adapted, kv, budget.max_context) : nullptr),
        sampler(model->n_vocab),
        masks(model->n_vocab),
        logits(model->n_vocab),
        file(checkpoint.weights.get()),
        eos_ids(checkpoint.eos_ids) {
    std::erase_if(eos_ids, [&](int32_t id) { return id < 0 || id >= model->n_vocab; });
    rope_row = [this](Step& s, int row, int rope_class) { model->write_rope_row(s, row, rope_class); };
    peaks = ledger.watch_peaks(workspace.logits);
    check_ops();
  }

  std::unique_ptr<PrefixTree> make_tree();
  void check_ops();

  void account_for_decoding(const Plan& plan, double seconds);
  void follow_rope_classes();
  void run_slice(const Slice& slice);
  void follow_adapters(const Plan& plan);
  void find_adapter_targets();
  void ask_for_masks(const Plan& plan);
  void collect(std::vector<Event>& events, const Plan& plan);
  void look_at_row(Sequence& sequence, int position, int logit_row);
  Event next_token(Sequence& sequence, int logit_row);
  bool takes_the_largest(const Sequence& sequence) const;
  void find_top_logits(const Plan& plan);
  Sampled sample(Sequence& sequence, int logit_row);
  void fail_request(Event& event, const Sequence& sequence, const std::string& why);
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
  Step step;
  std::unique_ptr<PrefixTree> tree;                    // null: nothing is kept
  Scheduler scheduler;
  std::unique_ptr<SlicedPrefill> slices;               // null: prompts are not sliced
  Sampler sampler;
  MaskWorker masks;                                    // of the sequences that sample in this step
  std::vector<float> logits;                           // one row, on the host
  const WeightFile* file;                              // open as long as the model
  const Peak* peaks = nullptr;                         // of the step's logit rows, where the device finds them
  const TopLogits* tops = nullptr;                     // the same, in steps in which somebody samples from them
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
  Traffic moved;                                       // by all steps so far
  int64_t n_prefill_tokens_before = 0;                 // the last step
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
    s.ask_for_masks(plan);
    fill_step(s.step, plan.grants, s.kv.page_size(), s.rope_row);
    s.follow_adapters(plan);
    forward(*s.model, s.adapted, s.step, s.workspace, s.kv.refs());
    s.masks.wait();
    s.find_top_logits(plan);
    s.stats.n_steps++;
  }
  s.collect(events, plan);
  if (!plan.grants.empty()) s.scheduler.observe_step(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (plan.slice.sequence && plan.slice.seconds > 0) s.run_slice(plan.slice);
  s.stats.n_preemptions = s.scheduler.n_preemptions();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  s.stats.seconds_in_steps += seconds;
  s.account_for_decoding(plan, seconds);
  return events;
}

void Engine::State::account_for_decoding(const Plan& plan, double seconds) {
  const Traffic before = std::exchange(moved, ledger.total());
  const bool prefilled = std::exchange(n_prefill_tokens_before, stats.n_prefill_tokens) != stats.n_prefill_tokens;
  if (prefilled || plan.grants.empty() || plan.slice.seconds > 0 || moved.bytes() < before.bytes()) return;      // fewer: the ledger was reset
  EngineStats::Decoding& d = stats.decoding;
  d.n_tokens += int64_t(plan.grants.size());
  d.traffic.weight_bytes += moved.weight_bytes - before.weight_bytes;
  d.traffic.kv_bytes += moved.kv_bytes - before.kv_bytes;
  d.traffic.activation_bytes += moved.activation_bytes - before.activation_bytes;
  d.traffic.flops += moved.flops - before.flops;
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

std::unique_ptr<PrefixTree> Engine::State::make_tree() {
  if (!options.prefix_cache && options.swap_bytes <= 0) return nullptr;
  // Twice over the memory bus, against a forward pass of as many tokens.
  const auto swap_pays = [this](int64_t n_bytes, int n_tokens) {
    const StepCost& costs = scheduler.costs();
    return !costs.knows_prefill() || 2 * double(n_bytes) / tree->copy_bytes_per_second() < costs.prefill_seconds(n_tokens, costs.attended(0, n_tokens));
  };
  return std::make_unique<PrefixTree>(kv, PrefixTreeOptions{.shared = options.prefix_cache, .swap_bytes = options.swap_bytes, .swap_pays = swap_pays});
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
    }
    scheduler.restart(sequence, now);
  });
}

void Engine::State::collect(std::vector<Event>& events, const Plan& plan) {
  int logit_row = 0;
  for (size_t i = 0; i < plan.grants.size(); ++i) {
    Sequence& sequence = *plan.grants[i].sequence;
    const StepSeq& rows = step.seqs()[i];
    const bool decoded = sequence.n_to_compute() == 1 && sequence.n_generated() > 0;
    (decoded ? stats.n_decode_tokens : stats.n_prefill_tokens) += rows.n_rows;
    scheduler.computed(sequence, rows.n_context);
    Event failed{.id = sequence.id};
    for (; logit_row < step.n_logits() && step.logit_rows()[logit_row] < rows.first_row + rows.n_rows; ++logit_row) {
      if (!failed.error.empty()) continue;
      try {
        look_at_row(sequence, step.positions()[step.logit_rows()[logit_row]], logit_row);
      } catch (const Error& error) {
        fail_request(failed, sequence, error.what());
      }
    }
    // Its last row is that of its last token, when it has caught up.
    if (!failed.error.empty()) events.push_back(std::move(failed));
    else if (sequence.n_to_compute() == 0) events.push_back(next_token(sequence, logit_row - 1));
  }
  for (Sequence* sequence : plan.out_of_memory) {
    events.push_back({.id = sequence->id});
    finish(events.back(), FinishReason::context);
  }
}

// Neighbours with one adapter are one run of rows.
void Engine::State::follow_adapters(const Plan& plan) {
  std::vector<AdaptedBackend::Run> runs;
  for (size_t i = 0; i < plan.grants.size(); ++i) {
    const Adapter* const adapter = plan.grants[i].sequence->adapter.get();
    const StepSeq& rows = step.seqs()[i];
    if (!adapter) continue;
    if (!runs.empty() && runs.back().adapter == adapter && runs.back().first_row + runs.back().n_rows == rows.first_row) runs.back().n_rows += rows.n_rows;
    else runs.push_back({rows.first_row, rows.n_rows, adapter});
  }
  adapted.follow(std::move(runs));
}

// A pass of one token that asks for no logits, and runs nothing: what it multiplies by are the weights that rows of tokens meet.
void Engine::State::find_adapter_targets() {
  step.clear();
  step.set_page_size(kv.page_size());
  step.add_seq({.n_rows = 1, .n_context = 1, .n_known = 1});
  step.add_token(0, 0, 0, false);
  adapted.watch(true);
  forward(*model, adapted, step, workspace, kv.refs());
  adapted.watch(false);
  step.clear();
  adapted.make_scratch(std::max(options.max_batch_tokens, slices ? SlicedPrefill::kTokens : 0));
}

void Engine::State::ask_for_masks(const Plan& plan) {
  masks.clear();
  for (const Grant& grant : plan.grants)
    if (grant.sequence->filter && grant.n_tokens == grant.sequence->n_to_compute() && grant.sequence->params.max_tokens != 0) masks.add(grant.sequence->filter.get());
  masks.begin();
}

// A row that somebody wants as it is: the sink, or the score of the prompt's next token.
void Engine::State::look_at_row(Sequence& sequence, int position, int logit_row) {
  const bool for_sink = sequence.wants_all_logits && sink, scores = position >= sequence.first_unscored() && position < sequence.n_prompt - 1;
  if (!for_sink && !scores) return;
  ledger.download(logits.data(), workspace.logits.slice_rows(logit_row, 1));
  if (for_sink) sink(sequence.id, position, logits);
  if (!scores) return;
  CHECK_EQ(position, sequence.first_unscored());
  sequence.prompt_logprobs.push_back(score_of(logits, sequence.tokens[position + 1], sequence.n_prompt_logprobs));
}

// Whether nothing but the largest logit decides, so that the row need not come to the host.
bool Engine::State::takes_the_largest(const Sequence& sequence) const {
  const SamplingParams& p = sequence.params;
  return p.greedy() && !sequence.filter && p.n_logprobs < 0 && p.logit_bias.empty() && p.repetition_penalty == 1.0f && p.presence_penalty == 0.0f &&
         p.frequency_penalty == 0.0f && p.dry_multiplier == 0.0f && sequence.n_generated() >= p.min_tokens;
}

// Where the device can, it picks out the largest logits, from which most requests are sampled.
void Engine::State::find_top_logits(const Plan& plan) {
  const bool wanted = std::any_of(plan.grants.begin(), plan.grants.end(), [&](const Grant& grant) {
    const Sequence& sequence = *grant.sequence;
    return grant.n_tokens == sequence.n_to_compute() && !sequence.filter && !takes_the_largest(sequence) && Sampler::top_may_decide(sequence.params, TopLogits::kMost);
  });
  tops = wanted ? ledger.top_logits(workspace.logits.slice_rows(0, step.n_logits())) : nullptr;
}

Sampled Engine::State::sample(Sequence& sequence, int logit_row) {
  // What is not a number goes the long way, to the sampler's words for it.
  const Peak peak = peaks && takes_the_largest(sequence) ? peaks[logit_row] : Peak{-1, 0};
  if (peak.token >= 0 && std::isfinite(peak.logit)) return {.token = peak.token};
  const SamplingParams& params = sequence.params;
  banned.clear();
  if (sequence.n_generated() < params.min_tokens) {
    banned = eos_ids;
    banned.insert(banned.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  }
  const SampleInput input{.params = params, .history = sequence.tokens, .n_prompt = sequence.n_prompt, .seed = sequence.seed, .counter = uint64_t(sequence.n_generated()), .banned = banned,
                          .allowed = sequence.filter ? masks.mask_of(sequence.filter.get()) : std::span<const uint32_t>{}, .mirostat_mu = &sequence.mirostat_mu};
  if (tops && tops[logit_row].n_found > 0) {
    top.clear();
    for (int i = 0; i < tops[logit_row].n_found; ++i) top.push_back({tops[logit_row].top[i].token, tops[logit_row].top[i].logit});
    if (const auto sampled = sampler.sample_top(top, input)) return *sampled;
  }
  ledger.download(logits.data(), workspace.logits.slice_rows(logit_row, 1));
  return sampler.sample(logits, input);
}

Event Engine::State::next_token(Sequence& sequence, int logit_row) {
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
    event.sampled.push_back(sample(sequence, logit_row));
    if (sequence.filter) sequence.filter->accept(event.sampled.back().token);
  } catch (const std::exception& error) {    // a filter's may be of any kind, and is this request's alone
    fail_request(event, sequence, error.what());
    return event;
  }
  const int32_t token = event.sampled.back().token;
  if (sequence.n_generated() == 0) sequence.first_token = std::chrono::steady_clock::now();
  sequence.tokens.push_back(token);
  FinishReason reason = finish_of(sequence, token);
  if (reason == FinishReason::stop) event.stop_token = token;
  else if (sequence.filter && sequence.filter->done()) reason = FinishReason::stop;
  if (reason != FinishReason::none) finish(event, reason);
  else stamp(event, sequence);
  return event;
}

void Engine::State::fail_request(Event& event, const Sequence& sequence, const std::string& why) {
  event.sampled.clear();
  event.error = fmt::format("request {}, after {} tokens: {}", sequence.id, sequence.n_known(), why);
  const bool damaged = std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x) || x == INFINITY; });
  if (damaged) event.error += "; " + diagnose_step(*model, *file, adapted, step, workspace, kv.refs());
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
  scheduler.remove(event.id, reason != FinishReason::error);
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
  if (sequence && sequence->state == SeqState::running) state_->scheduler.preempt(*sequence);
}

void Engine::load_adapter(const std::string& name, const std::string& folder) {
  State& s = *state_;
  if (name.empty()) fail("an adapter needs a name");
  if (s.adapters.count(name)) fail("an adapter '{}' is loaded already: unload it first", name);
  if (s.options.device == "cuda") fail("adapter '{}': adapters run on the CPU alone for now; use --device cpu, or merge the adapter into its model", name);
  if (!s.adapted.knows_targets()) s.find_adapter_targets();
  EngineOptions memory = s.options;
  memory.n_threads = 1;                      // it prepares weights and runs nothing
  std::shared_ptr<const Adapter> adapter = s.adapted.load(name, folder, *s.file, make_backend(memory));
  s.adapters[name] = {std::move(adapter), s.next_adapter++};
}

void Engine::unload_adapter(const std::string& name) {
  if (state_->adapters.erase(name) == 0) fail("there is no adapter '{}'", name);
}

std::vector<AdapterInfo> Engine::adapters() const {
  std::vector<AdapterInfo> infos;
  for (const auto& [name, loaded] : state_->adapters) {
    const Adapter& a = *loaded.adapter;
    infos.push_back({.name = name, .path = a.path(), .rank = a.rank(), .n_parts = a.n_parts(), .bytes = a.bytes()});
  }
  return infos;
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
