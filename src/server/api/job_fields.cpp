#include "server/api/job_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ridge {
namespace {

constexpr int64_t kIntMax = std::numeric_limits<int>::max();

// Of several names for one thing the first that is there.
std::string_view first_of(const Fields& fields, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (fields.has(name)) return name;
  return *names.begin();
}

void read_float(float& out, const Fields& fields, std::initializer_list<std::string_view> names, double low, double high) {
  if (const auto value = fields.number(first_of(fields, names), low, high)) out = float(*value);
}

void read_int(int& out, const Fields& fields, std::initializer_list<std::string_view> names, int64_t low, int64_t high) {
  if (const auto value = fields.integer(first_of(fields, names), low, high)) out = int(*value);
}

// A share of the probability: 0 would leave nothing.
void read_share(float& out, const Fields& fields, std::initializer_list<std::string_view> names) {
  const std::string_view name = first_of(fields, names);
  read_float(out, fields, names, 0, 1);
  if (fields.has(name) && !(out > 0)) fields.refuse(name, "must be more than 0, and 1 switches it off (temperature 0 is greedy)");
}

// OpenAI: {"15043": -100}. llama-server: [[15043, -1.5], [15043, false], ["word", 2]].
void read_logit_bias(SamplingParams& params, const Fields& fields, const Service& service) {
  const Json* value = fields.find("logit_bias");
  if (!value) return;
  const int n_vocab = service.facts.model().n_vocab;
  const std::string at = fields.path("logit_bias");
  if (value->size() > 65536) refuse_field(at, "at most 65536 entries");
  const auto bias_of = [&](const Json& bias, const std::string& path) {
    if (bias.is_boolean() && !bias.get<bool>()) return -INFINITY;
    const double x = bias.is_number() ? bias.get<double>() : NAN;
    if (!(x >= -100 && x <= 100)) throw ApiError(400, fmt::format("{} = {}: must be a number from -100 to 100", path, shown(bias)), path);
    return float(x);
  };
  if (value->is_object()) {
    for (const auto& [key, bias] : value->items()) {
      const bool digits = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      if (!digits || std::stoll(key) >= n_vocab) refuse_field(at, fmt::format("its keys must be token ids from 0 to {}, not {}", n_vocab - 1, shown(Json(key))));
      params.logit_bias[int32_t(std::stoll(key))] = bias_of(bias, at + "." + key);
    }
  } else if (value->is_array()) {
    size_t i = 0;
    for (const Json& pair : *value) {
      const std::string path = fmt::format("{}[{}]", at, i++);
      if (!pair.is_array() || pair.size() != 2) refuse_field(path, "must be [token id or text, bias]");
      const float bias = bias_of(pair[1], path + "[1]");
      if (pair[0].is_string()) {
        for (const int32_t token : service.tokenizer.encode(pair[0].get<std::string>())) params.logit_bias[token] = bias;
      } else {
        params.logit_bias[token_id(pair[0], path + "[0]", n_vocab)] = bias;
      }
    }
  } else {
    fields.refuse("logit_bias", "must be an object of token ids and biases, or a list of pairs");
  }
}

void read_max_tokens(SamplingParams& params, const Fields& fields) {
  for (const std::string_view name : {"max_completion_tokens", "max_tokens", "max_output_tokens"})
    if (const auto value = fields.integer(name, 0, kIntMax)) {
      params.max_tokens = int(*value);
      return;
    }
  for (const std::string_view name : {"n_predict", "num_predict"})               // llama-server and Ollama: -1 and -2 mean "until the context is full"
    if (const auto value = fields.integer(name, -2, kIntMax)) params.max_tokens = std::max(-1, int(*value));
}

void read_stops(SamplingParams& params, const Fields& fields, const Service& service) {
  const std::string_view name = first_of(fields, {"stop", "stop_sequences"});
  if (fields.has(name)) {
    params.stop = fields.texts(name);
    if (params.stop.size() > 128) fields.refuse(name, "at most 128 strings");
    for (const std::string& stop : params.stop) {
      if (stop.empty()) fields.refuse(name, "an empty string would end every answer at once");
      if (stop.size() > 4096) fields.refuse(name, "a stop string has at most 4096 bytes");
    }
  }
  if (fields.has("stop_token_ids")) params.stop_token_ids = fields.tokens("stop_token_ids", service.facts.model().n_vocab);
}

void read_dry(SamplingParams& params, const Fields& fields, const Service& service) {
  read_float(params.dry_multiplier, fields, {"dry_multiplier"}, 0, 100);
  read_float(params.dry_base, fields, {"dry_base"}, 1, 100);
  read_int(params.dry_allowed_length, fields, {"dry_allowed_length"}, 0, kIntMax);
  read_int(params.dry_penalty_last_n, fields, {"dry_penalty_last_n"}, -1, kIntMax);
  if (params.dry_multiplier == 0) return;
  const bool says = fields.has("dry_sequence_breakers");
  const std::vector<std::string> breakers = says ? fields.texts("dry_sequence_breakers") : kDefaultSequenceBreakers;
  if (breakers.size() > 64) fields.refuse("dry_sequence_breakers", "at most 64 strings");
  try {
    if (says || !params.dry_breakers) params.dry_breakers = service.breakers->of(service.tokenizer, breakers);
  } catch (const Error& error) {
    fields.refuse("dry_sequence_breakers", error.what());
  }
}

}  // namespace

void read_sampling(SamplingParams& params, const Fields& fields, const Service& service) {
  read_float(params.temperature, fields, {"temperature"}, 0, 100);
  read_float(params.dynatemp_range, fields, {"dynatemp_range"}, 0, 100);
  read_float(params.dynatemp_exponent, fields, {"dynatemp_exponent"}, 0.001, 100);
  read_share(params.top_p, fields, {"top_p"});
  if (const auto k = fields.integer("top_k", -1, kIntMax)) params.top_k = std::max(0, int(*k));
  read_float(params.min_p, fields, {"min_p"}, 0, 1);
  read_share(params.typical_p, fields, {"typical_p", "typical"});
  read_float(params.repetition_penalty, fields, {"repetition_penalty", "repeat_penalty"}, 0.01, 100);
  read_float(params.presence_penalty, fields, {"presence_penalty"}, -100, 100);
  read_float(params.frequency_penalty, fields, {"frequency_penalty"}, -100, 100);
  read_int(params.penalty_last_n, fields, {"repeat_last_n", "penalty_last_n"}, -1, kIntMax);
  read_dry(params, fields, service);
  read_float(params.xtc_probability, fields, {"xtc_probability"}, 0, 1);
  read_float(params.xtc_threshold, fields, {"xtc_threshold"}, 0, 1);
  read_int(params.mirostat, fields, {"mirostat"}, 0, 2);
  read_float(params.mirostat_tau, fields, {"mirostat_tau"}, 0, 100);
  read_float(params.mirostat_eta, fields, {"mirostat_eta"}, 0, 1);
  if (const auto sigma = fields.number("top_n_sigma", -1, 1000)) params.top_n_sigma = std::max(0.0f, float(*sigma));
  read_logit_bias(params, fields, service);
  if (const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max())) {
    if (*seed != -1) params.seed = uint64_t(*seed);                              // llama-server and Ollama: -1 is "draw one"
  }
  read_max_tokens(params, fields);
  read_int(params.min_tokens, fields, {"min_tokens"}, 0, kIntMax);
  if (params.max_tokens >= 0 && params.min_tokens > params.max_tokens)
    fields.refuse("min_tokens", fmt::format("must not exceed the {} tokens that the answer may have", params.max_tokens));
  if (const auto ignore = fields.boolean("ignore_eos")) params.ignore_eos = *ignore;
  read_stops(params, fields, service);
}

Constraint read_response_format(const Fields& format) {
  using Kind = Constraint::Kind;
  const auto type = format.one_of("type", {"text", "json_object", "json_schema"});
  if (!type) format.required("type", "text, json_object or json_schema");
  const std::string field = format.path("type");
  if (*type == "json_object") return format.has("schema") ? Constraint{Kind::json_schema, *format.find("schema"), field} : Constraint{Kind::json_object, nullptr, field};
  if (*type == "json_schema") {
    const auto inner = format.object("json_schema");
    const Fields& place = inner ? *inner : format;
    return {Kind::json_schema, place.required("schema", "the JSON schema that the answer must follow"), place.path("schema")};
  }
  return {};
}

Constraint read_constraint(const Fields& fields) {
  using Kind = Constraint::Kind;
  Constraint found;
  const auto add = [&](Constraint more) {
    if (more.kind == Kind::none) return;
    if (found.kind != Kind::none) refuse_field(more.field, fmt::format("the form of the answer is set by {} already; leave one of them out", found.field));
    found = std::move(more);
  };
  const auto add_all = [&](const Fields& place, std::string_view json, std::string_view regex, std::string_view choice, std::string_view grammar) {
    if (const Json* value = place.find(json)) {
      // vLLM takes the schema also as a string of JSON.
      add({Kind::json_schema, value->is_string() ? parse_json(value->get<std::string>(), place.path(json)) : *value, place.path(json)});
    }
    if (const auto value = place.text(regex)) add({Kind::regex, *value, place.path(regex)});
    if (place.has(choice)) {
      if (!place.array(choice)->empty()) add({Kind::choice, place.texts(choice), place.path(choice)});
      else place.refuse(choice, "must hold at least one string");
    }
    if (const auto value = place.text(grammar)) add({Kind::gbnf, *value, place.path(grammar)});
  };
  if (const auto format = fields.object("response_format")) add(read_response_format(*format));
  add_all(fields, "guided_json", "guided_regex", "guided_choice", "guided_grammar");
  add_all(fields, "json_schema", "regex", "choice", "grammar");                  // llama-server's and SGLang's names
  if (const auto structured = fields.object("structured_outputs")) {
    if (structured->has("structural_tag")) structured->refuse("structural_tag", "is not supported; use json, regex, choice or grammar");
    add_all(*structured, "json", "regex", "choice", "grammar");
    if (structured->boolean("json_object").value_or(false)) add({Kind::json_object, nullptr, structured->path("json_object")});
  }
  if (found.kind == Kind::json_schema && !found.value.is_object() && !found.value.is_boolean()) refuse_field(found.field, "a JSON schema must be an object");
  if ((found.kind == Kind::regex || found.kind == Kind::gbnf) && !found.value.is_string()) refuse_field(found.field, "must be a string");
  return found;
}

int read_top_logprobs(const Fields& fields, std::string_view name, const Service& service, int absent) {
  const auto value = fields.integer(name, 0, service.options.max_logprobs);
  return value ? int(*value) : absent;
}

std::string check_model(const Fields& fields, const Service& service) {
  const auto model = fields.text("model");
  if (!model) return {};
  const auto& names = service.options.model_names;
  if (std::find(names.begin(), names.end(), *model) != names.end()) return {};
  if (service.adapters->has(*model)) return *model;
  throw ApiError(404, fmt::format("the model {} is not served here; what is: {}", shown(*model), fmt::join(names, ", ")), "model", "model_not_found");
}

void read_job(Job& job, const Fields& fields, const Service& service) {
  job.adapter = check_model(fields, service);
  job.params = service.options.defaults;
  read_sampling(job.params, fields, service);
  const ServiceOptions& options = service.options;
  if (const auto n = fields.integer("n", 1, options.max_choices)) job.n = int(*n);
  job.best_of = job.n;
  if (const auto best = fields.integer("best_of", 1, options.max_choices)) job.best_of = int(*best);
  if (job.best_of < job.n) fields.refuse("best_of", fmt::format("must not be less than n = {}", job.n));
  job.stream = fields.boolean("stream").value_or(false);
  if (job.stream && job.best_of > job.n) fields.refuse("best_of", "cannot be streamed when it is more than n: the best are known at the end alone");
  if (const auto stream_options = fields.object("stream_options")) {
    job.include_usage = stream_options->boolean("include_usage").value_or(false);
    job.continuous_usage = stream_options->boolean("continuous_usage_stats").value_or(false);
  }
  if (fields.boolean("use_beam_search").value_or(false)) fields.refuse("use_beam_search", "is not supported; use best_of");
  job.n_prompt_logprobs = read_top_logprobs(fields, "prompt_logprobs", service, -1);
  job.constraint = read_constraint(fields);
  job.cache_salt = fields.text("cache_salt").value_or("");
  job.user = fields.text("user").value_or("");
  job.priority = int(fields.integer("priority", -1000000, 1000000).value_or(0));
  job.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  job.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  job.return_token_ids = fields.boolean("return_token_ids").value_or(false);
}

}  // namespace ridge
