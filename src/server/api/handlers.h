// The endpoints, one function each. A handler parses and submits, or answers at once; what it throws is answered as an error in the shape of its API (routes.cpp).
#pragma once
#include <memory>

#include "base/json.h"
#include "server/api/job.h"
#include "server/http.h"
#include "server/service.h"

namespace ridge {

using ServicePtr = std::shared_ptr<const Service>;
// The service under the name that the job's answers carry: an adapter's, where it asked for one.
ServicePtr named_for(const ServicePtr& service, const Job& job);
using ReplyPtr = std::shared_ptr<HttpReply>;

Json body_of(const HttpRequest& request);                       // throws 400 for what is no JSON object
void send_json(const ReplyPtr& reply, const Json& json, int status = 200);

// Bodies to jobs, alone: for tests.
ChatJob parse_chat(const Json& body, const Service& service);
CompletionJob parse_completion(const Json& body, const Service& service);
ChatJob parse_response(const Json& body, const Service& service);
ChatJob parse_anthropic(const Json& body, const Service& service, bool counting = false);
ChatJob parse_ollama_chat(const Json& body, const Service& service);

// OpenAI.
void handle_models(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_chat(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_completions(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_responses(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_embeddings(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
// Anthropic.
void handle_messages(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_count_tokens(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
// Ollama.
void handle_ollama_chat(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_ollama_generate(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_ollama_tags(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_ollama_show(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
// llama-server's and vLLM's own.
void handle_tokenize(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_detokenize(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_apply_template(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_version(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_props(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_slots(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_cache(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_cache_flush(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
void handle_adapters(const ServicePtr&, const HttpRequest&, const ReplyPtr&);

}  // namespace ridge
