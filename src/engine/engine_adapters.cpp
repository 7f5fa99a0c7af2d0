// LoRA adapters of an engine: loading them by name, and which rows of a step each belongs to.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/device.h"
#include "engine/engine_state.h"

namespace ridge {

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

// Neighbours with one adapter are one run of rows.
void Engine::State::follow_adapters(const Flight& flight) {
  const Plan& plan = flight.plan;
  std::vector<AdaptedBackend::Run> runs;
  for (size_t i = 0; i < plan.grants.size(); ++i) {
    const Adapter* const adapter = plan.grants[i].sequence->adapter.get();
    const StepSeq& rows = flight.step.seqs()[i];
    if (!adapter) continue;
    if (!runs.empty() && runs.back().adapter == adapter && runs.back().first_row + runs.back().n_rows == rows.first_row) runs.back().n_rows += rows.n_rows;
    else runs.push_back({rows.first_row, rows.n_rows, adapter});
  }
  adapted.follow(std::move(runs));
}

// A pass of one token that asks for no logits, and runs nothing: what it multiplies by are the weights that rows of tokens meet.
void Engine::State::find_adapter_targets() {
  Step& step = (current().is_under_way ? behind() : current()).step;
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

}  // namespace ridge
