// Making an engine: options settled and checked, memory divided, everything built, and a look whether the device has the model's ops.
#include <algorithm>
#include <utility>

#include "backend/op_check.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/compatibility.h"
#include "engine/device.h"
#include "engine/engine_state.h"

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

// Tokens that a step's penalties count, or that are biased: 3 MiB on their way to the device, beside weights and KV by the gigabyte. Where there are more, the host applies them.
constexpr int64_t kMostCounts = 1 << 18;

bool may_run_ahead(const EngineOptions& options, const Backend& device) { return options.run_ahead.value_or(device.works_alone()) && !options.profile; }

StepLimits step_limits(const Model& model, const KvCache& kv, const EngineOptions& options, const Backend& device, int max_context) {
  const int pages_per_table = (max_context + options.page_size - 1) / options.page_size;
  return {.max_tokens = options.max_batch_tokens, .max_seqs = options.max_seqs, .max_logits = options.max_logits,
          .max_pages = options.max_seqs * kv.n_groups() * pages_per_table, .n_groups = kv.n_groups(),
          .n_ropes = int(model.ropes.size()), .n_freqs = model.n_freqs(), .max_rope_rows = options.max_seqs,
          .max_counts = may_run_ahead(options, device) ? int(std::min(kMostCounts, int64_t{options.max_seqs} * max_context)) : 0};
}

}  // namespace

Engine::State::State(const Checkpoint& checkpoint, EngineOptions given)
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
      flights{Flight(step_limits(*model, kv, options, *device, budget.max_context)), Flight(step_limits(*model, kv, options, *device, budget.max_context))},
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
  runs_ahead = may_run_ahead(options, *device);
  if (runs_ahead || device->works_alone()) peaks = ledger.watch_peaks(workspace.logits);
  runs_ahead &= peaks != nullptr;
  check_ops();
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
  Step& step = current().step;
  step.add_seq({.n_rows = 1, .n_context = 1, .n_known = 1});
  step.add_token(0, 0, 0, true);
  forward(*model, check, step, workspace, kv.refs());
  step.clear();
  if (!check.missing().empty())
    fail("{} models need the op {}, for which {} has no kernel: use --device cpu", model->family, check.missing(), device->name());
}

}  // namespace ridge
