// DRY ("don't repeat yourself"): when the last n tokens occurred before and token t followed them there, choosing t would carry the repetition on; its logit falls by
// multiplier * base^(n - allowed_length), with the longest such n. Breakers bound n: nothing repeats across a new line, say.
//
//   a b c c b c y a b c ?     "a b c" occurred and c followed (n = 3), "b c" and y followed (2), "c" and b followed (1)
//
// Read from the end, n is the length of the match of the sequence with itself k tokens further: all of them in one linear pass (the Z-algorithm).
#include <algorithm>
#include <cmath>
#include <utility>

#include "sample/sampler.h"
#include "text/sequence_breakers.h"

namespace ridge {
namespace {

// back(i): the token i before the last.
struct FromTheEnd {
  std::span<const int32_t> tokens;
  int size() const { return int(tokens.size()); }
  int32_t operator[](int i) const { return tokens[tokens.size() - 1 - size_t(i)]; }
};

// Tokens since the last breaker.
int since_breaker(const FromTheEnd& back, const SequenceBreakers* breakers) {
  if (!breakers) return back.size();
  for (int i = 0; i < back.size(); ++i) {
    const auto found = breakers->after.find(back[i]);
    if (found == breakers->after.end()) continue;
    int longest = -1;
    for (const std::vector<int32_t>& tail : found->second) {
      const int n = int(tail.size());
      if (n <= longest || n > i) continue;
      bool follows = true;
      for (int j = 0; j < n && follows; ++j) follows = tail[j] == back[i - 1 - j];
      if (follows) longest = n;
    }
    if (longest >= 0) return i - longest;
  }
  return back.size();
}

bool breaks_alone(const SequenceBreakers* breakers, int32_t token) {
  if (!breakers) return false;
  const auto found = breakers->after.find(token);
  return found != breakers->after.end() && std::any_of(found->second.begin(), found->second.end(), [](const auto& tail) { return tail.empty(); });
}

}  // namespace

void Sampler::penalise_repetitions(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> history) {
  const size_t reach = params.dry_penalty_last_n < 0 ? history.size() : std::min(history.size(), size_t(params.dry_penalty_last_n));
  const FromTheEnd back{history.last(reach)};
  const int n_tokens = back.size(), limit = since_breaker(back, params.dry_breakers.get()), allowed = params.dry_allowed_length;
  if (n_tokens <= allowed || limit < allowed) return;

  std::vector<int32_t>& match = matches_;    // match[k]: how far back[0, ...) equals back[k, ...)
  match.assign(size_t(n_tokens), 0);
  for (int k = 1, first = 0, last = 0; k < n_tokens; ++k) {     // back[first, last) is the match found so far that reaches furthest
    int n = k < last ? std::min(match[size_t(k - first)], last - k) : 0;
    while (k + n < n_tokens && back[n] == back[k + n]) ++n;
    match[size_t(k)] = n;
    if (k + n > last) first = k, last = k + n;
  }
  // counts_ holds 1 + n, so that a match of no tokens (allowed_length 0) counts too.
  for (int k = 1; k < n_tokens; ++k)
    if (const int n = std::min(match[size_t(k)], limit); n >= allowed) counts_[back[k - 1]] = std::max(counts_[back[k - 1]], n + 1);
  for (int k = 1; k < n_tokens; ++k) {
    const int32_t token = back[k - 1];
    const int n = std::exchange(counts_[token], 0) - 1;
    if (n < 0 || breaks_alone(params.dry_breakers.get(), token)) continue;
    logits[token] -= float(std::min(1e30, params.dry_multiplier * std::pow(double(params.dry_base), double(n - allowed))));
  }
}

}  // namespace ridge
