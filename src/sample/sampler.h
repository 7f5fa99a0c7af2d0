// One token from one row of logits, in this order:
//   1. logprobs are taken from the logits as the model gave them
//   2. logit bias, then banned tokens
//   3. repetition penalty (Hugging Face's: a positive logit is divided, a negative one multiplied, once per token of the last n, prompt included),
//      presence and frequency penalties (OpenAI's: over generated tokens only)
//   4. temperature; 0 takes the largest logit here, the lowest id among equals
//   5. cuts, each renormalising what the last one left: top-k, typical, top-p, min-p (llama.cpp's order)
//   6. a draw from a counter-based generator, so that token n of a request depends on (seed, n) alone and not on what else runs
// Nothing sorts the vocabulary: greedy is one pass, top-k keeps a small buffer above a rising threshold, top-p first drops what cannot be in it.
#pragma once
#include <array>
#include <span>

#include "sequence/sequence.h"

namespace ridge {

class Sampler {
 public:
  explicit Sampler(int n_vocab);
  // `history`: prompt and generated tokens, for the penalties. `logits` is scratch afterwards. NaN or +inf in the logits throws Error.
  // `banned`: ids that may not be chosen now (eos before min_tokens).
  Sampled sample(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> history, int n_prompt, uint64_t seed, uint64_t counter,
                 std::span<const int32_t> banned = {});

 private:
  struct Candidate { int32_t token; double order, weight; };   // weight: probability times a factor common to all; order: what a cut sorts by
  void adjust(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> history, int n_prompt, std::span<const int32_t> banned);
  int32_t draw(std::span<const float> logits, const SamplingParams& params, float largest, double u);
  void report_logprobs(Sampled& sampled, int n_logprobs) const;

  std::vector<Candidate> candidates_;        // reused
  std::vector<TokenLogprob> buffer_;         // reused
  std::vector<float> raw_;                   // the logits before step 2, when logprobs are wanted
  std::vector<int32_t> counts_;              // by token; zero between calls
};

struct Largest { int32_t token; float logit; };
// The largest logit, the lowest id among equals. NaN anywhere gives token -1.
Largest find_largest(std::span<const float> logits);

// The k largest logits in descending order (lower ids first among equals) into `out`.
void select_top_k(std::vector<TokenLogprob>& out, std::span<const float> logits, int k);

// Philox-4x32-10: uniform in [0, 1) from (seed, counter).
double uniform(uint64_t seed, uint64_t counter);
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A seed for a request that names none.
uint64_t random_seed();

}  // namespace ridge
