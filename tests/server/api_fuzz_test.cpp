// Bodies of all APIs, mutated with fixed seeds as bytes and as JSON: each becomes a job or an Error that says something, never anything else.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "files/fuzz.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/prepare.h"
#include "server/api_service.h"

namespace ridge {
namespace {

const char* kTools = R"([{"type":"function","function":{"name":"f","description":"d","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}])";

std::string chat_body() {
  return std::string(R"({"model":"tiny","messages":[{"role":"system","content":"Be kind."},{"role":"user","content":[{"type":"text","text":"Hi"}]},)"
                     R"({"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":\"b\"}"}}]},)"
                     R"({"role":"tool","tool_call_id":"c","content":"ok"},{"role":"assistant","content":"So"}],"tools":)") +
         kTools +
         R"(,"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"typical_p":0.9,"seed":7,"n":2,)"
         R"("best_of":3,"max_tokens":5,"min_tokens":1,"stop":["a","b"],"stop_token_ids":[1,2],"logit_bias":{"5":-100},"logprobs":true,"top_logprobs":3,"presence_penalty":0.1,)"
         R"("frequency_penalty":0.2,"repetition_penalty":1.1,"dry_multiplier":0.8,"dry_base":1.7,"dry_sequence_breakers":["\n"],"xtc_probability":0.1,"mirostat":2,"top_n_sigma":1,)"
         R"("stream_options":{"include_usage":true},"chat_template_kwargs":{"enable_thinking":true},"thinking_budget":4,"cache_salt":"s","priority":1,"user":"u",)"
         R"("continue_final_message":true,"add_generation_prompt":false,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}})";
}

const std::string kCompletion = R"({"model":"tiny","prompt":["a",[1,2,3]],"echo":true,"logprobs":2,"suffix":null,"n":1,"max_tokens":0,"guided_choice":["x","y"],"prompt_logprobs":1,"logit_bias":[[5,false],["a",1]]})";
const std::string kResponse = R"({"model":"tiny","instructions":"i","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},)"
                              R"({"type":"function_call_output","call_id":"c","output":"o"},{"type":"reasoning","summary":[]}],"tools":[{"type":"function","name":"f","parameters":{}}],)"
                              R"("text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}},"reasoning":{"effort":"low"},"max_output_tokens":5,"include":["message.output_text.logprobs"]})";
const std::string kAnthropic = R"({"model":"tiny","max_tokens":5,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"t"},)"
                               R"({"type":"text","text":"y"},{"type":"tool_use","id":"t","name":"f","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"r"}]}]}],)"
                               R"("tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"enabled","budget_tokens":5},"metadata":{"user_id":"u"},"stop_sequences":["q"]})";
const std::string kOllama = R"({"model":"tiny:latest","messages":[{"role":"user","content":"x"}],"options":{"temperature":0.1,"num_predict":4,"stop":["x"],"repeat_last_n":3},"format":{"type":"object"},"think":true,"stream":false})";

// Another value in some place of the tree.
void disturb(Json& json, std::mt19937_64& random) {
  static const Json kOdd[] = {nullptr, true, -1, 0, 1, 2147483648ll, -9223372036854775807ll, 18446744073709551615ull, 1e300, 0.5, "", "x", std::string(3000, 'y'), "\u0000", Json::array(), Json::object(),
                              Json::array({1, "a", nullptr}), {{"type", "text"}}, {{"type", "image_url"}}, {{"a", {{"b", {{"c", 1}}}}}}};
  Json* at = &json;
  while (at->is_structured() && !at->empty() && random() % 8 != 0) at = &*std::next(at->begin(), std::ptrdiff_t(random() % at->size()));
  switch (random() % 4) {
    case 0:
      if (at->is_object() && !at->empty()) at->erase(at->begin());
      else *at = kOdd[random() % std::size(kOdd)];
      break;
    case 1:
      if (at->is_array()) at->push_back(kOdd[random() % std::size(kOdd)]);
      else *at = kOdd[random() % std::size(kOdd)];
      break;
    default: *at = kOdd[random() % std::size(kOdd)];
  }
}

struct Outcome { size_t n_jobs = 0, n_errors = 0; };

template <class Parse>
void try_parse(Outcome& outcome, const Json& body, Parse parse) {
  try {
    const auto job = parse(body);
    job.params.validate();
    if constexpr (std::is_same_v<std::decay_t<decltype(job)>, ChatJob>) render_chat(*tiny_service().service, job);
    outcome.n_jobs++;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    outcome.n_errors++;
  }
}

template <class Parse>
void fuzz_body(const std::string& valid, uint64_t seed, Parse parse) {
  Outcome outcome;
  const Json tree = parse_json(valid, "valid");
  std::mt19937_64 random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  for (int i = 0; i < 6000 && std::chrono::steady_clock::now() < end; ++i) {
    Json body = tree;
    for (uint64_t k = 0, n = 1 + random() % 3; k < n; ++k) disturb(body, random);
    if (body.is_object()) try_parse(outcome, body, parse);
  }
  fuzz(valid, valid.size(), seed, std::chrono::milliseconds(1000), [&](const std::string& bytes) {
    try {
      try_parse(outcome, body_of(HttpRequest{.body = bytes}), parse);
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 400);
      outcome.n_errors++;
    }
  });
  EXPECT_GT(outcome.n_errors, 100u);
  EXPECT_GT(outcome.n_jobs, 20u);
}

TEST(ApiFuzz, MutatedChatsAreJobsOrErrors) {
  Json body = parse_json(chat_body(), "chat");
  body.erase("best_of");                       // the full body contradicts itself in places: a valid one has fewer wishes
  body["tool_choice"] = "auto";
  fuzz_body(body.dump(), 1, [](const Json& b) { return parse_chat(b, *tiny_service().service); });
}
TEST(ApiFuzz, MutatedCompletionsAreJobsOrErrors) {
  fuzz_body(kCompletion, 2, [](const Json& b) { return parse_completion(b, *tiny_service().service); });
}
TEST(ApiFuzz, MutatedResponsesAreJobsOrErrors) {
  fuzz_body(kResponse, 3, [](const Json& b) { return parse_response(b, *tiny_service().service); });
}
TEST(ApiFuzz, MutatedMessagesAreJobsOrErrors) {
  fuzz_body(kAnthropic, 4, [](const Json& b) { return parse_anthropic(b, *tiny_service().service); });
}
TEST(ApiFuzz, MutatedOllamaChatsAreJobsOrErrors) {
  fuzz_body(kOllama, 5, [](const Json& b) { return parse_ollama_chat(b, *tiny_service().service); });
}

// Through the routes, to the end: every answer has a status that HTTP knows and a body that is JSON, and the engine is empty afterwards.
TEST(ApiFuzz, MutatedRequestsAreAnsweredWithAStatus) {
  ApiService& api = tiny_service();
  std::mt19937_64 random(6);
  const std::pair<const char*, Json> valid[] = {
      {"/v1/chat/completions", {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 2}, {"n", 2}, {"logprobs", true}, {"stop", {"x"}}}},
      {"/v1/completions", {{"prompt", "Hi"}, {"max_tokens", 2}, {"echo", true}, {"logprobs", 1}}},
      {"/v1/responses", {{"input", "Hi"}, {"max_output_tokens", 2}}},
      {"/v1/messages", {{"max_tokens", 2}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}}},
      {"/v1/embeddings", {{"input", {"a", "b"}}}},
      {"/api/generate", {{"prompt", "Hi"}, {"stream", false}, {"options", {{"num_predict", 2}}}}},
      {"/tokenize", {{"prompt", "Hi"}, {"with_pieces", true}}},
      {"/detokenize", {{"tokens", {1, 2, 3}}}},
      {"/apply-template", {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}}}};
  int n_good = 0, n_bad = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int i = 0; i < 400 && std::chrono::steady_clock::now() < end; ++i) {
    const auto& [path, tree] = valid[random() % std::size(valid)];
    Json body = tree;
    disturb(body, random);
    if (body.is_object() && path[4] == 'c' && !body.contains("max_tokens")) continue;       // would go on until the context is full
    const auto reply = api.ask(path, body.dump());
    EXPECT_TRUE(reply->status == 200 || (reply->status >= 400 && reply->status < 500)) << path << body << reply->body;
    if (reply->content_type == "application/json") {
      EXPECT_NO_THROW(parse_json(reply->body, path));
    }
    (reply->status == 200 ? n_good : n_bad)++;
  }
  EXPECT_GT(n_good, 20);
  EXPECT_GT(n_bad, 20);
  EXPECT_EQ(api.n_live(), 0u);
}

}  // namespace
}  // namespace ridge
