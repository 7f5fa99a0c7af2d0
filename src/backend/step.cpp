#include "backend/step.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace ridge {

static_assert(std::is_trivially_copyable_v<StepSeq> && std::is_trivially_copyable_v<Draw> && sizeof(Draw) == 64 && sizeof(TokenCount) == 12);

float penalised(float logit, const Penalties& penalties, bool is_recent, int n_generated) {
  if (is_recent) logit = logit > 0 ? logit / penalties.repetition : logit * penalties.repetition;
  if (n_generated > 0) logit -= penalties.presence + penalties.frequency * float(n_generated);
  return logit;
}

Step::Step(const StepLimits& limits) : limits_(limits) {
  CHECK_LE(limits.n_groups, kMaxKvGroups);
  int64_t size = 0;
  const auto reserve = [&](int64_t n_bytes) {
    const int64_t offset = size;
    size += (n_bytes + 63) / 64 * 64;
    return offset;
  };
  reserve(sizeof(Head));
  tokens_ = reserve(4ll * limits.max_tokens);
  positions_ = reserve(4ll * limits.max_tokens);
  seq_of_ = reserve(4ll * limits.max_tokens);
  seqs_ = reserve(int64_t(sizeof(StepSeq)) * limits.max_seqs);
  logit_rows_ = reserve(4ll * limits.max_logits);
  draws_ = reserve(int64_t(sizeof(Draw)) * limits.max_logits);
  rope_ = reserve(4ll * limits.max_rope_rows * limits.n_ropes * (limits.n_freqs + 1));
  pages_ = reserve(4ll * limits.max_pages);
  counts_ = reserve(int64_t(sizeof(TokenCount)) * limits.max_counts);
  block_.resize(size);
}

void Step::clear() {
  const int page_size = head().page_size;
  head() = Head{.page_size = page_size};
}

int Step::add_seq(const StepSeq& seq) {
  CHECK_LT(n_seqs(), limits_.max_seqs);
  at<StepSeq>(seqs_)[n_seqs()] = seq;
  return head().n_seqs++;
}

void Step::add_token(int32_t token, int32_t position, int32_t seq, bool wants_logits) {
  const int row = n_tokens();
  CHECK_LT(row, limits_.max_tokens);
  at<int32_t>(tokens_)[row] = token;
  at<int32_t>(positions_)[row] = position;
  at<int32_t>(seq_of_)[row] = seq;
  head().n_tokens++;
  if (!wants_logits) return;
  CHECK_LT(n_logits(), limits_.max_logits);
  at<Draw>(draws_)[n_logits()] = {};
  at<int32_t>(logit_rows_)[head().n_logits++] = row;
}

void Step::set_draw(int logit_row, const Draw& draw) {
  CHECK(logit_row >= 0 && logit_row < n_logits());
  at<Draw>(draws_)[logit_row] = draw;
  if (draw.any()) head().draws = 1;
  if (draw.penalties.any()) head().penalises = 1;
  if (draw.scores()) head().scores = 1;
  if (draw.masked) head().waits = 1;
}

void Step::set_token(int row, int32_t token) {
  CHECK(row >= 0 && row < n_tokens());
  at<int32_t>(tokens_)[row] = token;
}

int Step::add_pages(std::span<const int32_t> table) {
  const int first = n_pages();
  CHECK_LE(first + int(table.size()), limits_.max_pages);
  if (!table.empty()) std::memcpy(at<int32_t>(pages_) + first, table.data(), table.size_bytes());
  head().n_pages += int(table.size());
  return first;
}

int Step::add_counts(std::span<const TokenCount> counts) {
  const int first = n_counts();
  CHECK_LE(first + int(counts.size()), limits_.max_counts);
  std::copy(counts.begin(), counts.end(), at<TokenCount>(counts_) + first);
  head().n_counts += int(counts.size());
  return first;
}

int Step::n_logits_before(int row) const {
  const auto rows = logit_rows();
  return int(std::lower_bound(rows.begin(), rows.end(), row) - rows.begin());
}

int Step::add_rope_row() {
  CHECK_LT(n_rope_rows(), limits_.max_rope_rows);
  return head().n_rope_rows++;
}

StepView Step::view_at(const std::byte* base) const {
  const auto ints = [&](int64_t offset) { return reinterpret_cast<const int32_t*>(base + offset); };
  return {.tokens = ints(tokens_), .positions = ints(positions_), .seq_of = ints(seq_of_), .logit_rows = ints(logit_rows_), .pages = ints(pages_),
          .seqs = reinterpret_cast<const StepSeq*>(base + seqs_), .rope = reinterpret_cast<const float*>(base + rope_),
          .n_ropes = limits_.n_ropes, .n_freqs = limits_.n_freqs};
}

}  // namespace ridge
