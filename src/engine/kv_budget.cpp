#include "engine/kv_budget.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "kv/layout.h"

namespace ridge {
namespace {

constexpr int kContextOfASilentModel = 4096;

double gigabytes(int64_t bytes) { return double(bytes) / 1e9; }

// The longest context up to `most` whose KV takes at most max_bytes: whole pages, or `most` itself. 0: not even one page.
template <class BytesFor>
int longest_that_fits(int most, int page_size, int64_t max_bytes, const BytesFor& bytes_for) {
  if (bytes_for(most) <= max_bytes) return most;
  int low = 0, high = most / page_size;      // in pages
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (bytes_for(middle * page_size) <= max_bytes) low = middle;
    else high = middle - 1;
  }
  return low * page_size;
}

}  // namespace

KvBudget plan_kv(const Model& model, const EngineOptions& options, int64_t free_bytes) {
  const bool asked = options.max_context > 0;
  const int trained = model.max_context > 0 ? model.max_context : kContextOfASilentModel;
  int context = asked ? options.max_context : trained;
  if (model.embed_positions.rows > 0 && context > model.embed_positions.rows) {
    if (asked) fail("context size {}: the model has learned {} positions and cannot go further", context, model.embed_positions.rows);
    context = int(model.embed_positions.rows);
  }
  if (asked && context > trained) log_warn("A context of {} is more than the {} tokens this model was made for: what comes after those may be poor.", context, trained);

  const auto bytes_for = [&](int n_tokens) {
    return kv_bytes_for(model.kv_specs, {options.page_size, options.max_seqs, n_tokens, options.max_batch_tokens, options.prefix_cache ? options.max_seqs : 0}, n_tokens);
  };
  const int64_t limit = options.kv_bytes > 0 ? options.kv_bytes : asked ? free_bytes / 10 * 9 : free_bytes / 4;
  const int fits = longest_that_fits(context, options.page_size, limit, bytes_for);
  if (fits == 0)
    fail("{:.3g} GB for KV are too little: one page of {} tokens needs {:.3g} GB", gigabytes(limit), options.page_size, gigabytes(bytes_for(options.page_size)));
  if (fits < context) {
    if (asked) fail("a context of {} needs {:.3g} GB for KV and there are {:.3g} GB: {} would fit", context, gigabytes(bytes_for(context)), gigabytes(limit), fits);
    log_info("The context is cut from {} to {} tokens to fit {:.2f} GB of memory for KV; set the context size to ask for another.", context, fits, gigabytes(limit));
  }
  if (options.kv_bytes > 0) return {fits, options.kv_bytes};
  // A prefix cache makes use of whatever there is, up to all sequences at their longest.
  const KvDemand most{options.page_size, options.max_seqs, fits, options.max_batch_tokens, options.prefix_cache ? options.max_seqs : 0};
  return {fits, options.prefix_cache ? std::max(bytes_for(fits), std::min(limit, kv_bytes_for(model.kv_specs, most, int64_t{fits} * options.max_seqs))) : bytes_for(fits)};
}

}  // namespace ridge
