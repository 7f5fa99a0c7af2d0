#include "engine/sliced_prefill.h"

#include <chrono>

namespace ridge {

SlicedPrefill::SlicedPrefill(const Model& model, Backend& backend, const KvCache& kv, int max_context)
    : model_(model), backend_(backend), kv_(kv),
      step_({.max_tokens = kTokens, .max_seqs = 1, .max_logits = 1, .max_pages = kv.n_groups() * ((max_context + kv.page_size() - 1) / kv.page_size()), .n_groups = kv.n_groups(),
             .n_ropes = int(model.ropes.size()), .n_freqs = model.n_freqs(), .max_rope_rows = 1}),
      workspace_(model, backend, kTokens, 1) {}

SlicedPrefill::Progress SlicedPrefill::run(const Slice& slice, const RopeRow& rope_row) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  if (slice.serial != serial_) {
    serial_ = slice.serial;
    pass_ = {};
    const Grant grant{slice.sequence, slice.n_tokens};
    fill_step(step_, {&grant, 1}, kv_.page_size(), rope_row);
  }
  Progress progress{};
  do {
    forward_block(model_, backend_, step_, workspace_, kv_.refs(), pass_);
    progress.n_blocks++;
    progress.seconds = elapsed();
    progress.is_through = pass_.n_done == model_.blocks.size();
    // The next one takes as long as those before.
  } while (!progress.is_through && progress.seconds * (progress.n_blocks + 1) / progress.n_blocks <= slice.seconds);
  return progress;
}

}  // namespace ridge
