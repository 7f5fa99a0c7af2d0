// Sequences over a real KV cache without an engine: runs tokens of one of them at a time, gives back pages as an engine would, steps back and forks.
#pragma once
#include <span>
#include <vector>

#include "base/check.h"
#include "kv/cache.h"
#include "model/model.h"

namespace ridge::test {

class CachedSequences {
 public:
  CachedSequences(const Model& model, Backend& backend, int max_tokens, int max_context)
      : model_(model), backend_(backend),
        cache_(model.kv_specs, backend, {.page_size = 64, .max_bytes = int64_t{1} << 30, .max_context = max_context, .max_seqs = 4, .max_step_tokens = max_tokens}),
        workspace_(model, backend, max_tokens, max_tokens),
        step_({.max_tokens = max_tokens, .max_seqs = 1, .max_logits = max_tokens, .max_pages = (max_context / 64 + 1) * cache_.n_groups(), .n_groups = cache_.n_groups(),
               .n_ropes = static_cast<int>(model.ropes.size()), .n_freqs = model.n_freqs(), .max_rope_rows = 1}) {}

  KvCache& cache() { return cache_; }

  // Computes the next tokens; logits of those rows, [n][n_vocab]. Only when they are certain are pages given back that nobody sees from there on.
  std::vector<float> run(Track& track, std::span<const int32_t> tokens, bool certain = true) {
    const int n = static_cast<int>(tokens.size()), first = track.n_computed;
    CHECK(cache_.reserve(track, first + n));
    step_.clear();
    step_.set_page_size(64);
    StepSeq seq{.slot = 0, .first_row = 0, .n_rows = n, .n_context = first + n, .rope_row = 0, .first_page = {}};
    for (size_t g = 0; g < track.pages.size(); ++g) seq.first_page[g] = step_.add_pages(track.pages[g]);
    seq.rope_row = step_.add_rope_row();
    model_.write_rope_row(step_, seq.rope_row, model_.rope_class(first + n));
    step_.add_seq(seq);
    for (int i = 0; i < n; ++i) step_.add_token(tokens[static_cast<size_t>(i)], first + i, 0, true);
    forward(model_, backend_, step_, workspace_, cache_.refs());
    track.n_computed += n;
    if (certain) cache_.release_unseen(track, track.n_computed);
    std::vector<float> logits(static_cast<size_t>(n) * static_cast<size_t>(model_.n_vocab));
    backend_.download(logits.data(), workspace_.logits.slice_rows(0, n));
    return logits;
  }

 private:
  const Model& model_;
  Backend& backend_;
  KvCache cache_;
  Workspace workspace_;
  Step step_;
};

}  // namespace ridge::test
