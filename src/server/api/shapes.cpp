#include "server/api/shapes.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace ridge {
namespace {

const char* openai_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 501: return "not_implemented_error";
    case 503: return "unavailable_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

const char* anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

double finite(float logprob) { return std::isfinite(logprob) ? double(logprob) : -9999.0; }      // as OpenAI has it: JSON has no infinity

Json logprob_entry(const Tokenizer& tokenizer, int32_t token, float logprob) {
  const std::string bytes = tokenizer.token_bytes(token);
  Json numbers = Json::array();
  for (const char c : bytes) numbers.push_back(int(uint8_t(c)));
  return {{"token", token_text(tokenizer, token)}, {"logprob", finite(logprob)}, {"bytes", std::move(numbers)}};
}

}  // namespace

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string sse(const Json& json) { return "data: " + dumped(json) + "\n\n"; }
std::string sse_event(std::string_view name, const Json& json) { return fmt::format("event: {}\ndata: {}\n\n", name, dumped(json)); }

int64_t unix_seconds(std::chrono::system_clock::time_point at) { return std::chrono::duration_cast<std::chrono::seconds>(at.time_since_epoch()).count(); }

std::string iso_time(std::chrono::system_clock::time_point at) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch()).count() % 1000000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(at)), micros);
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.n_prompt},
          {"completion_tokens", usage.n_generated},
          {"total_tokens", usage.n_prompt + usage.n_generated},
          {"prompt_tokens_details", {{"cached_tokens", usage.n_cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.n_reasoning}}}};
}

Json error_json(int status, const std::string& message, const std::string& param, const std::string& code) {
  return {{"error", {{"message", message}, {"type", openai_type(status)}, {"param", param.empty() ? Json() : Json(param)}, {"code", code.empty() ? Json() : Json(code)}}}};
}

std::string token_text(const Tokenizer& tokenizer, int32_t token) { return utf8::replace_invalid(tokenizer.token_bytes(token)); }

Json logprob_entries(const Tokenizer& tokenizer, const std::vector<Sampled>& tokens, int n_top) {
  Json out = Json::array();
  for (const Sampled& sampled : tokens) {
    Json entry = logprob_entry(tokenizer, sampled.token, sampled.logprob);
    Json top = Json::array();
    for (size_t i = 0; i < sampled.top.size() && int(i) < n_top; ++i) top.push_back(logprob_entry(tokenizer, sampled.top[i].token, sampled.top[i].logprob));
    entry["top_logprobs"] = std::move(top);
    out.push_back(std::move(entry));
  }
  return out;
}

Json prompt_logprobs_json(const Tokenizer& tokenizer, const std::vector<Sampled>& tokens) {
  Json out = Json::array({nullptr});
  for (const Sampled& sampled : tokens) {
    Json place = Json::object();
    const auto put = [&](int32_t token, float logprob, Json rank) {
      place[std::to_string(token)] = {{"logprob", finite(logprob)}, {"rank", std::move(rank)}, {"decoded_token", token_text(tokenizer, token)}};
    };
    const auto among = std::find_if(sampled.top.begin(), sampled.top.end(), [&](const TokenLogprob& t) { return t.token == sampled.token; });
    put(sampled.token, sampled.logprob, among == sampled.top.end() ? Json() : Json(among - sampled.top.begin() + 1));
    for (size_t i = 0; i < sampled.top.size(); ++i) put(sampled.top[i].token, sampled.top[i].logprob, i + 1);
    out.push_back(std::move(place));
  }
  return out;
}

std::string openai_error(int status, const std::string& message, const std::string& param, const std::string& code) { return dumped(error_json(status, message, param, code)); }

std::string anthropic_error(int status, const std::string& message, const std::string&, const std::string&) {
  return dumped({{"type", "error"}, {"error", {{"type", anthropic_type(status)}, {"message", message}}}});
}

std::string ollama_error(int, const std::string& message, const std::string&, const std::string&) { return dumped({{"error", message}}); }

ErrorShape error_shape_of(std::string_view path) {
  if (path.starts_with("/v1/messages")) return anthropic_error;
  if (path.starts_with("/api/")) return ollama_error;
  return openai_error;
}

}  // namespace ridge
