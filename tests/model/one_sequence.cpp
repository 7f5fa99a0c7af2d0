#include "model/one_sequence.h"

#include <algorithm>

namespace ridge::test {

OneSequence::OneSequence(const Model& model, Backend& backend, int max_tokens, int page_size)
    : model_(model), backend_(backend), page_size_(page_size), n_pages_((max_tokens + page_size - 1) / page_size), workspace_(model, backend, max_tokens, max_tokens),
      step_({.max_tokens = max_tokens, .max_seqs = 1, .max_logits = max_tokens, .max_pages = n_pages_, .n_groups = 1, .n_ropes = static_cast<int>(model.ropes.size()),
             .n_freqs = model.n_freqs(), .max_rope_rows = 1}) {
  for (const KvSpec& spec : model.kv_specs) {
    KvRef ref{.planes = spec.planes, .page_size = page_size};
    for (size_t i = 0; i < spec.planes.size(); i++) {
      ref.offsets[i] = ref.page_bytes;
      ref.page_bytes += (page_size * row_bytes(spec.planes[i].format, int64_t{spec.planes[i].n_heads} * spec.planes[i].head_dim) + 63) / 64 * 64;
    }
    ref.base = backend.allocate(ref.page_bytes * n_pages_);
    kv_.push_back(ref);
  }
  for (int p = 0; p < n_pages_; p++) table_.push_back(n_pages_ - 1 - p);
}

std::vector<float> OneSequence::run(std::span<const int32_t> tokens, int rope_class, int every) {
  const int n = static_cast<int>(tokens.size());
  step_.clear();
  step_.set_page_size(page_size_);
  StepSeq seq{.slot = 0, .first_row = 0, .n_rows = n, .n_context = n_computed_ + n};
  seq.first_page[0] = step_.add_pages(table_);
  seq.rope_row = step_.add_rope_row();
  model_.write_rope_row(step_, seq.rope_row, rope_class);
  step_.add_seq(seq);
  for (int i = 0; i < n; i++) step_.add_token(tokens[i], n_computed_ + i, 0, every > 0 && i % every == 0);
  forward(model_, backend_, step_, workspace_, kv_);
  n_computed_ += n;
  std::vector<float> logits(static_cast<size_t>(step_.n_logits()) * static_cast<size_t>(model_.n_vocab));
  if (!logits.empty()) backend_.download(logits.data(), workspace_.logits.slice_rows(0, step_.n_logits()));
  return logits;
}

}  // namespace ridge::test
