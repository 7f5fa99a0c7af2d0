// The fields that OpenAI's API, vLLM's and llama-server's additions to it, and Ollama's options have in common: how to sample, what form the answer must have.
#pragma once
#include "server/api/fields.h"
#include "server/api/job.h"
#include "server/service.h"

namespace ridge {

// Sampling, stops, limits, seed, under all names in use. What the body does not say stays as it is in `params`.
void read_sampling(SamplingParams& params, const Fields& fields, const Service& service);
// The same for everything else that jobs share: stream, n, best_of, user, priority, cache_salt, prompt_logprobs, and the form of the answer.
void read_job(Job& job, const Fields& fields, const Service& service);
Constraint read_constraint(const Fields& fields);
// response_format of OpenAI, or text.format of its Responses (where json_schema's members stand in it directly).
Constraint read_response_format(const Fields& format);
// 404 when the body names a model that is not served; without the field any will do. Returns the adapter it names, empty for the base model.
std::string check_model(const Fields& fields, const Service& service);
// A string, a list of strings, a list of token ids, or a list of such lists: /v1/completions and /v1/embeddings.
std::vector<Prompt> read_prompts(const Fields& fields, std::string_view name, const Service& service);
int read_top_logprobs(const Fields& fields, std::string_view name, const Service& service, int absent);

}  // namespace ridge
