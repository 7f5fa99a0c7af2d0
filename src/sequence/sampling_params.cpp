#include "sequence/sampling_params.h"

#include <cmath>

#include "base/error.h"

namespace ridge {
namespace {

void check_range(const char* name, float value, float low, float high) {
  if (!(value >= low && value <= high)) fail("{} = {}: must lie between {} and {}", name, value, low, high);
}

}  // namespace

Penalties SamplingParams::penalties() const {
  return {.repetition = penalty_last_n == 0 ? 1.0f : repetition_penalty, .presence = presence_penalty, .frequency = frequency_penalty};
}

void SamplingParams::validate() const {
  check_range("temperature", temperature, 0.0f, 100.0f);
  if (top_k < 0) fail("top_k = {}: must be 0 (off) or more", top_k);
  check_range("top_p", top_p, 0.0f, 1.0f);
  if (top_p == 0.0f) fail("top_p = 0: must be more than 0, 1 switches it off (temperature 0 is greedy)");
  check_range("min_p", min_p, 0.0f, 1.0f);
  check_range("typical_p", typical_p, 0.0f, 1.0f);
  if (typical_p == 0.0f) fail("typical_p = 0: must be more than 0, 1 switches it off");
  check_range("dynatemp_range", dynatemp_range, 0.0f, 100.0f);
  check_range("dynatemp_exponent", dynatemp_exponent, 0.0f, 100.0f);
  check_range("top_n_sigma", top_n_sigma, -1.0f, 100.0f);
  check_range("xtc_probability", xtc_probability, 0.0f, 1.0f);
  check_range("xtc_threshold", xtc_threshold, 0.0f, 1.0f);
  if (mirostat < 0 || mirostat > 2) fail("mirostat = {}: must be 0 (off), 1 or 2", mirostat);
  check_range("mirostat_tau", mirostat_tau, 0.0f, 100.0f);
  check_range("mirostat_eta", mirostat_eta, 0.0f, 10.0f);
  check_range("dry_multiplier", dry_multiplier, 0.0f, 100.0f);
  check_range("dry_base", dry_base, 1.0f, 100.0f);
  if (dry_allowed_length < 0) fail("dry_allowed_length = {}: must be 0 or more", dry_allowed_length);
  if (dry_penalty_last_n < -1) fail("dry_penalty_last_n = {}: must be -1 (all tokens), 0 (none) or more", dry_penalty_last_n);
  check_range("repetition_penalty", repetition_penalty, 0.01f, 100.0f);
  check_range("presence_penalty", presence_penalty, -100.0f, 100.0f);
  check_range("frequency_penalty", frequency_penalty, -100.0f, 100.0f);
  if (penalty_last_n < -1) fail("penalty_last_n = {}: must be -1 (all tokens), 0 (none) or more", penalty_last_n);
  for (const auto& [token, bias] : logit_bias) {
    if (token < 0) fail("logit_bias of token {}: token ids are not negative", token);
    if (std::isnan(bias) || bias == INFINITY) fail("logit_bias of token {} = {}: must be a number, or -inf to ban the token", token, bias);
  }
  if (logit_bias.size() > 65536) fail("logit_bias has {} entries: at most 65536", logit_bias.size());
  if (max_tokens < -1) fail("max_tokens = {}: must be -1 (until the context is full) or more", max_tokens);
  if (min_tokens < 0) fail("min_tokens = {}: must be 0 or more", min_tokens);
  if (max_tokens >= 0 && min_tokens > max_tokens) fail("min_tokens = {}: must not exceed max_tokens = {}", min_tokens, max_tokens);
  if (stop.size() > 1024) fail("stop has {} strings: at most 1024", stop.size());
  for (const std::string& s : stop) {
    if (s.empty()) fail("stop holds an empty string: it would end every answer at once");
    if (s.size() > 65536) fail("stop holds a string of {} bytes: at most 65536", s.size());
  }
  for (const int32_t token : stop_token_ids)
    if (token < 0) fail("stop_token_ids holds {}: token ids are not negative", token);
  if (n_logprobs < -1 || n_logprobs > 1024) fail("n_logprobs = {}: must be -1 (none) to 1024", n_logprobs);
}

}  // namespace ridge
