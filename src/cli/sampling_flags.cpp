#include "cli/sampling_flags.h"

#include <cmath>
#include <sstream>

#include "base/error.h"
#include "engine/generation_defaults.h"
#include "text/sequence_breakers.h"

namespace ridge {
namespace {

template <class T>
T parsed(const std::string& name, const std::string& value) {
  T number{};
  if (!CLI::detail::lexical_cast(value, number)) fail("{}: '{}' is not a number", name, value);
  return number;
}

// `--temp=-1`-like mistakes are found by SamplingParams::validate, which names the range.
template <class T>
void override(T& out, const std::optional<T>& flag) {
  if (flag) out = *flag;
}

}  // namespace

void add_sampling_flags(CLI::App& command, SamplingFlags& flags) {
  const char* group = "How it answers (where not given: the model's generation_config.json)";
  command.add_option("-n,--predict,--n-predict", flags.n_predict, "Tokens to generate at most; -1: until it ends or the context is full")->group(group);
  command.add_option("--temp,--temperature", flags.temperature, "Temperature; 0: always the likeliest token")->group(group);
  command.add_option("--top-k", flags.top_k, "Only the k likeliest tokens; 0: off")->group(group);
  command.add_option("--top-p", flags.top_p, "Only the likeliest tokens that make up this share; 1: off")->group(group);
  command.add_option("--min-p", flags.min_p, "Only tokens this likely relative to the likeliest; 0: off")->group(group);
  command.add_option("--typical,--typical-p", flags.typical_p, "Locally typical sampling; 1: off")->group(group);
  command.add_option("--repeat-penalty", flags.repeat_penalty, "Makes repeated tokens less likely; 1: off")->group(group);
  command.add_option("--repeat-last-n", flags.repeat_last_n, "Tokens the repeat penalty looks back at; -1: all")->group(group);
  command.add_option("--presence-penalty", flags.presence_penalty, "Subtracted once for a token that has appeared; 0: off")->group(group);
  command.add_option("--frequency-penalty", flags.frequency_penalty, "Subtracted for each time a token has appeared; 0: off")->group(group);
  command.add_option("--top-nsigma,--top-n-sigma", flags.top_n_sigma, "Only logits within this many standard deviations of the largest; -1: off")->group(group);
  command.add_option("--xtc-probability", flags.xtc_probability, "How often the likeliest tokens are excluded; 0: off")->group(group);
  command.add_option("--xtc-threshold", flags.xtc_threshold, "Of tokens this likely only the least likely stays, when XTC strikes")->group(group);
  command.add_option("--dynatemp-range", flags.dynatemp_range, "The temperature moves by this much with the entropy; 0: off")->group(group);
  command.add_option("--dynatemp-exp", flags.dynatemp_exponent, "Exponent of that movement")->group(group);
  command.add_option("--mirostat", flags.mirostat, "Mirostat 1 or 2 instead of the cuts; 0: off")->group(group);
  command.add_option("--mirostat-ent", flags.mirostat_tau, "Mirostat: the surprise to aim at (tau), in bits")->group(group);
  command.add_option("--mirostat-lr", flags.mirostat_eta, "Mirostat: how fast it adapts (eta)")->group(group);
  command.add_option("--dry-multiplier", flags.dry_multiplier, "Penalty of carrying a repetition on; 0: off")->group(group);
  command.add_option("--dry-base", flags.dry_base, "How that penalty grows with each repeated token")->group(group);
  command.add_option("--dry-allowed-length", flags.dry_allowed_length, "Repeated tokens that cost nothing")->group(group);
  command.add_option("--dry-penalty-last-n", flags.dry_penalty_last_n, "Tokens searched for repetitions; -1: all")->group(group);
  command.add_option("--dry-sequence-breaker", flags.dry_breakers, "Nothing repeats across this text; may be repeated, none: no text (usual: new line, colon, quote, star)")->allow_extra_args(false)->group(group);
  command.add_option("-s,--seed", flags.seed, "Seed: the same seed gives the same answer")->group(group);
  command.add_option("--stop,-r,--reverse-prompt", flags.stop, "Ends the answer where this text appears; may be repeated")->group(group);
  command.add_flag("--ignore-eos", flags.ignore_eos, "Go on past the end of the answer")->group(group);
}

SamplingParams sampling_params(const SamplingFlags& flags, const Json& generation_config, const Tokenizer& tokenizer) {
  SamplingParams params = defaults_from(generation_config);
  // A cut without a temperature asks for sampling.
  const bool cuts = flags.top_k || flags.top_p || flags.min_p || flags.typical_p || flags.top_n_sigma || flags.xtc_probability || flags.dynatemp_range || flags.mirostat || flags.seed;
  if (params.temperature == 0 && cuts && !flags.temperature) params.temperature = 1;
  override(params.temperature, flags.temperature);
  override(params.top_k, flags.top_k);
  override(params.top_p, flags.top_p);
  override(params.min_p, flags.min_p);
  override(params.typical_p, flags.typical_p);
  override(params.repetition_penalty, flags.repeat_penalty);
  override(params.penalty_last_n, flags.repeat_last_n);
  override(params.presence_penalty, flags.presence_penalty);
  override(params.frequency_penalty, flags.frequency_penalty);
  override(params.top_n_sigma, flags.top_n_sigma);
  override(params.xtc_probability, flags.xtc_probability);
  override(params.xtc_threshold, flags.xtc_threshold);
  override(params.dynatemp_range, flags.dynatemp_range);
  override(params.dynatemp_exponent, flags.dynatemp_exponent);
  override(params.mirostat, flags.mirostat);
  override(params.mirostat_tau, flags.mirostat_tau);
  override(params.mirostat_eta, flags.mirostat_eta);
  override(params.dry_multiplier, flags.dry_multiplier);
  override(params.dry_base, flags.dry_base);
  override(params.dry_allowed_length, flags.dry_allowed_length);
  override(params.dry_penalty_last_n, flags.dry_penalty_last_n);
  if (params.dry_multiplier > 0 && flags.dry_breakers != std::vector<std::string>{"none"})
    params.dry_breakers = std::make_shared<SequenceBreakers>(find_sequence_breakers(tokenizer, flags.dry_breakers.empty() ? kDefaultSequenceBreakers : flags.dry_breakers));
  override(params.max_tokens, flags.n_predict);
  if (flags.seed) params.seed = flags.seed;
  params.stop = flags.stop;
  params.ignore_eos = flags.ignore_eos;
  params.validate();
  return params;
}

void set_sampling(SamplingParams& params, const std::string& name, const std::string& value) {
  SamplingParams changed = params;
  if (name == "temp" || name == "temperature") changed.temperature = parsed<float>(name, value);
  else if (name == "top-k") changed.top_k = parsed<int>(name, value);
  else if (name == "top-p") changed.top_p = parsed<float>(name, value);
  else if (name == "min-p") changed.min_p = parsed<float>(name, value);
  else if (name == "typical") changed.typical_p = parsed<float>(name, value);
  else if (name == "repeat-penalty") changed.repetition_penalty = parsed<float>(name, value);
  else if (name == "repeat-last-n") changed.penalty_last_n = parsed<int>(name, value);
  else if (name == "presence-penalty") changed.presence_penalty = parsed<float>(name, value);
  else if (name == "frequency-penalty") changed.frequency_penalty = parsed<float>(name, value);
  else if (name == "top-nsigma") changed.top_n_sigma = parsed<float>(name, value);
  else if (name == "xtc-probability") changed.xtc_probability = parsed<float>(name, value);
  else if (name == "xtc-threshold") changed.xtc_threshold = parsed<float>(name, value);
  else if (name == "mirostat") changed.mirostat = parsed<int>(name, value);
  else if (name == "dry-multiplier") changed.dry_multiplier = parsed<float>(name, value);
  else if (name == "predict" || name == "n") changed.max_tokens = parsed<int>(name, value);
  else if (name == "seed") changed.seed = value == "random" ? std::nullopt : std::optional<uint64_t>(parsed<uint64_t>(name, value));
  else if (name == "stop") changed.stop = value.empty() ? std::vector<std::string>{} : std::vector<std::string>{value};
  else fail("there is no parameter '{}'; there are temp, top-k, top-p, min-p, typical, repeat-penalty, repeat-last-n, presence-penalty, frequency-penalty, top-nsigma, xtc-probability, xtc-threshold, "
            "mirostat, dry-multiplier, predict, seed, stop", name);
  changed.validate();
  params = changed;
}

std::string describe_sampling(const SamplingParams& p) {
  std::string text = p.temperature == 0 ? "temp 0 (greedy)" : fmt::format("temp {:g}", p.temperature);
  const auto add = [&](bool shown, const char* name, auto value) {
    if (shown) text += fmt::format(", {} {}", name, value);
  };
  add(p.top_k > 0, "top-k", p.top_k);
  add(p.top_p < 1, "top-p", p.top_p);
  add(p.min_p > 0, "min-p", p.min_p);
  add(p.typical_p < 1, "typical", p.typical_p);
  add(p.repetition_penalty != 1, "repeat-penalty", p.repetition_penalty);
  add(p.presence_penalty != 0, "presence-penalty", p.presence_penalty);
  add(p.frequency_penalty != 0, "frequency-penalty", p.frequency_penalty);
  add(p.top_n_sigma > 0, "top-nsigma", p.top_n_sigma);
  add(p.xtc_probability > 0, "xtc-probability", p.xtc_probability);
  add(p.dynatemp_range > 0, "dynatemp-range", p.dynatemp_range);
  add(p.mirostat > 0, "mirostat", p.mirostat);
  add(p.dry_multiplier > 0, "dry-multiplier", p.dry_multiplier);
  add(p.max_tokens >= 0, "predict", p.max_tokens);
  if (p.temperature > 0) text += p.seed ? fmt::format(", seed {}", *p.seed) : ", seed random";
  return text;
}

}  // namespace ridge
