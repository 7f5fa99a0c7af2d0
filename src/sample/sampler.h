// One token from one row of logits, in this order:
//   1. logprobs are taken from the logits as the model gave them
//   2. logit bias, then banned tokens and those a filter does not allow
//   3. repetition penalty (Hugging Face's: a positive logit is divided, a negative one multiplied, once per token of the last n, prompt included),
//      presence and frequency penalties (OpenAI's: over generated tokens only), DRY (dry.cpp)
//   4. temperature; 0 takes the largest logit here, the lowest id among equals
//   5. cuts, each renormalising what the last one left: top-n-sigma, top-k, typical, top-p, min-p, XTC (llama.cpp's order); or mirostat instead of them all.
//      A dynamic temperature follows the cuts, as its measure is what they left; the cuts then see a temperature of 1
//   6. a draw from a counter-based generator, so that token n of a request depends on (seed, n) and its tokens so far, not on what else runs
// Nothing sorts the vocabulary: greedy is one pass, top-k keeps a small buffer above a rising threshold, top-p first drops what cannot be in it, and a draw from all walks over
// sums of weights.
#pragma once
#include <array>
#include <optional>
#include <span>

#include "backend/backend.h"
#include "sequence/sequence.h"

namespace ridge {

struct SampleInput {
  const SamplingParams& params;
  std::span<const int32_t> history = {};     // prompt and generated tokens, for the penalties
  int n_prompt = 0;
  uint64_t seed = 0, counter = 0;
  std::span<const int32_t> banned = {};      // ids that may not be chosen now (eos before min_tokens)
  std::span<const uint32_t> allowed = {};    // a filter's mask, see TokenFilter; empty: all are allowed
  float* mirostat_mu = nullptr;              // the sequence's, where params.mirostat: 2 * tau before its first token
};

class Sampler {
 public:
  explicit Sampler(int n_vocab);
  // `logits` is scratch afterwards. NaN or +inf in the logits throws Error.
  Sampled sample(std::span<float> logits, const SampleInput& input);

  // The same token from the largest logits alone, in descending order (lower ids first among equals), where they decide: nothing when what lies below them might
  // have a say, or when there is something to complain about. A device finds them, so that the row need not come to the host.
  std::optional<Sampled> sample_top(std::span<const TokenLogprob> top, const SampleInput& input);
  // Whether there are logits of the model for which they decide: cut at top-k or greedy, and nothing raises a logit or looks at all of them.
  static bool top_may_decide(const SamplingParams& params, int n_top);

 private:
  struct Candidate { int32_t token; double order, weight; };   // weight: probability times a factor common to all; order: what a cut sorts by
  void adjust(std::span<float> logits, const SampleInput& input);
  template <class At> void penalise(const At& at, const SampleInput& input);     // at(token): where its logit is, null: not there
  void penalise_repetitions(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> history);      // DRY
  int32_t draw(std::span<const float> logits, const SampleInput& input, float largest);
  int32_t draw_gathered(const SampleInput& input, double total);         // total: of what was there to gather
  int32_t draw_mirostat(std::span<const float> logits, const SampleInput& input, float largest);
  void gather(std::span<const float> logits, int top_k, float least, float largest, double sharpness);     // into candidates_
  void gather_weighed(double lightest);                        // of weights_
  void gather_top(std::span<const TokenLogprob> top, float least, float largest, double sharpness);
  void exclude_top_choices(const SamplingParams& params);                                                  // XTC
  void heat_by_entropy(const SamplingParams& params);
  size_t pick(double u) const;                                 // an index into candidates_
  int32_t pick_in_order(double left) const;                    // the token in whose weight it lies, of weights_

  std::vector<Candidate> candidates_;        // reused
  std::vector<double> weights_, sums_;       // the same: by token, and of pieces of them (weights.h)
  std::vector<TokenLogprob> buffer_;         // reused
  std::vector<float> raw_;                   // the logits before step 2, when logprobs are wanted
  std::vector<int32_t> counts_;              // by token; zero between calls
  std::vector<int32_t> places_;              // the same: 1 + where a token is in buffer_
  std::vector<int32_t> matches_;             // DRY's, reused
};

struct Largest { int32_t token; float logit; };
// The largest logit, the lowest id among equals. NaN anywhere gives token -1.
Largest find_largest(std::span<const float> logits);

// The k largest logits in descending order (lower ids first among equals) into `out`.
void select_top_k(std::vector<TokenLogprob>& out, std::span<const float> logits, int k);

// The token's logprob and the n_logprobs likeliest, of a row of the model's logits. NaN throws Error.
Sampled score_of(std::span<const float> logits, int32_t token, int n_logprobs);
// The same from what a device says of the row; nothing where that is not enough, or no number.
std::optional<Sampled> score_of(const Score& score, int32_t token, int n_logprobs);

// Philox-4x32-10: uniform in [0, 1) from (seed, counter). Streams are independent of each other.
double uniform(uint64_t seed, uint64_t counter, uint32_t stream = 0);
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A seed for a request that names none.
uint64_t random_seed();

}  // namespace ridge
