// Pieces of JSON that several APIs write alike.
#pragma once
#include <string>
#include <string_view>

#include "base/json_text.h"
#include "server/api/answering.h"

namespace ridge {

std::string dumped(const Json& json);                                      // ill-formed UTF-8 becomes U+FFFD
std::string sse(const Json& json);                                         // "data: ...\n\n"
std::string sse_event(std::string_view name, const Json& json);            // "event: name\ndata: ...\n\n"
int64_t unix_seconds(std::chrono::system_clock::time_point at = std::chrono::system_clock::now());
std::string iso_time(std::chrono::system_clock::time_point at = std::chrono::system_clock::now());

// OpenAI's.
Json usage_json(const Usage& usage);
Json error_json(int status, const std::string& message, const std::string& param, const std::string& code);
std::string token_text(const Tokenizer& tokenizer, int32_t token);         // readable, also when it is half a character
Json logprob_entries(const Tokenizer& tokenizer, const std::vector<Sampled>& tokens, int n_top);          // of chats and responses: token, logprob, bytes, top_logprobs
// vLLM's: null for the first token, then {"id": {logprob, rank, decoded_token}}.
Json prompt_logprobs_json(const Tokenizer& tokenizer, const std::vector<Sampled>& tokens);

// The bodies of errors.
std::string openai_error(int status, const std::string& message, const std::string& param, const std::string& code);
std::string anthropic_error(int status, const std::string& message, const std::string& param, const std::string& code);
std::string ollama_error(int status, const std::string& message, const std::string& param, const std::string& code);
ErrorShape error_shape_of(std::string_view path);

}  // namespace ridge
