#include "sequence/batch.h"

#include <algorithm>

#include "base/check.h"

namespace ridge {
namespace {

// Sequences of one class share a rope row.
int rope_row_of(Step& step, std::span<const Grant> grants, size_t i, const RopeRow& rope_row) {
  const int rope_class = grants[i].sequence->track.rope_class;
  for (size_t j = 0; j < i; ++j)
    if (grants[j].sequence->track.rope_class == rope_class) return step.seqs()[j].rope_row;
  const int row = step.add_rope_row();
  rope_row(step, row, rope_class);
  return row;
}

}  // namespace

void fill_step(Step& step, std::span<const Grant> grants, int page_size, const RopeRow& rope_row) {
  step.clear();
  step.set_page_size(page_size);
  for (size_t i = 0; i < grants.size(); ++i) {
    const Sequence& sequence = *grants[i].sequence;
    const Track& track = sequence.track;
    const bool is_ahead = grants[i].follows >= 0;
    const int first = is_ahead ? sequence.n_known() : track.n_computed, n_known = sequence.n_known() + is_ahead, n_context = first + grants[i].n_tokens;
    CHECK(grants[i].n_tokens > 0 && n_context <= n_known);
    StepSeq seq{.slot = sequence.slot, .first_row = step.n_tokens(), .n_rows = grants[i].n_tokens, .n_context = n_context, .n_known = n_known};
    seq.rope_row = rope_row_of(step, grants, i, rope_row);
    const size_t n_pages = (n_context + page_size - 1) / page_size;
    for (size_t g = 0; g < track.pages.size(); ++g) {
      CHECK_GE(track.pages[g].size(), n_pages);
      seq.first_page[g] = step.add_pages(std::span(track.pages[g]).first(n_pages));
    }
    const int index = step.add_seq(seq);
    if (is_ahead) step.add_token(-1 - grants[i].follows, first, index, true);
    else for (int position = first; position < n_context; ++position)
      step.add_token(sequence.tokens[position], position, index, sequence.asks_for_logits(position));
  }
}

std::optional<Penalties> add_penalties(Step& step, Sequence& sequence, int n_known) {
  CHECK(n_known == sequence.n_known() || n_known == sequence.n_known() + 1);
  Penalties penalties = sequence.params.penalties();
  if (!sequence.params.changes_logits()) return penalties;
  const bool counts_tokens = penalties.counts_tokens();
  const int last_n = penalties.repetition == 1.0f ? 0 : sequence.params.penalty_last_n;
  const std::span<const TokenCount> counts = sequence.counts.follow(counts_tokens ? std::span<const int32_t>(sequence.tokens) : std::span<const int32_t>{}, sequence.n_prompt,
                                                                    counts_tokens && last_n >= 0 ? std::max(0, n_known - last_n) : 0, sequence.params.logit_bias);
  if (step.n_counts() + int(counts.size()) > step.limits().max_counts) return std::nullopt;
  penalties.n_counts = int(counts.size());
  penalties.first_count = step.add_counts(counts);
  penalties.counts_own = counts_tokens && n_known > sequence.n_known();
  return penalties;
}

}  // namespace ridge
