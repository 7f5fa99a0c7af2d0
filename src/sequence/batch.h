// Lays the granted tokens of sequences out as a Step: rows, page tables, rope rows.
#pragma once
#include <functional>
#include <optional>
#include <span>

#include "backend/step.h"
#include "sequence/sequence.h"

namespace ridge {

struct Grant {
  Sequence* sequence;
  int n_tokens;                              // of those not computed yet; pages are reserved already
  int follows = -1;                          // >= 0: one token, the one after those known, which this logit row of the step before chooses (step.h)
};

// Writes frequencies of every rope for a class into a Step's rope row (rope_freqs): the model's part, so that `sequence` need not know the model.
using RopeRow = std::function<void(Step& step, int row, int rope_class)>;

// Which rows ask for logits the sequence says: its last known token's, those that score its prompt, or all.
void fill_step(Step& step, std::span<const Grant> grants, int page_size, const RopeRow& rope_row);

// The penalties and biases of a row behind which the sequence has n_known tokens, one more at most than it knows itself: that is the row's own. What they count, or change, is added to the step.
// Nothing: it has no room for that.
std::optional<Penalties> add_penalties(Step& step, Sequence& sequence, int n_known);

}  // namespace ridge
