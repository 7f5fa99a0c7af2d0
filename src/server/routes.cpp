#include "server/routes.h"

#include "base/error.h"
#include "base/log.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/shapes.h"

namespace ridge {
namespace {

using ServiceHandler = void (*)(const ServicePtr&, const HttpRequest&, const ReplyPtr&);
struct Route { const char *method, *path; ServiceHandler handler; };

// A path that ends in /* matches what begins like it. Paths without /v1 are those of older clients.
constexpr Route kRoutes[] = {
    {"GET", "/v1/models", handle_models},
    {"GET", "/v1/models/*", handle_models},
    {"GET", "/models", handle_models},
    {"POST", "/v1/chat/completions", handle_chat},
    {"POST", "/chat/completions", handle_chat},
    {"POST", "/v1/completions", handle_completions},
    {"POST", "/v1/responses", handle_responses},
    {"POST", "/v1/embeddings", handle_embeddings},
    {"POST", "/v1/messages", handle_messages},
    {"POST", "/v1/messages/count_tokens", handle_count_tokens},
    {"POST", "/api/chat", handle_ollama_chat},
    {"POST", "/api/generate", handle_ollama_generate},
    {"GET", "/api/tags", handle_ollama_tags},
    {"POST", "/api/show", handle_ollama_show},
    {"GET", "/api/version", handle_version},
    {"POST", "/tokenize", handle_tokenize},
    {"POST", "/detokenize", handle_detokenize},
    {"POST", "/apply-template", handle_apply_template},
    {"GET", "/version", handle_version},
    {"GET", "/props", handle_props},
    {"GET", "/slots", handle_slots},
    {"GET", "/v1/cache", handle_cache},
    {"DELETE", "/v1/cache", handle_cache_flush},
    {"POST", "/v1/cache/flush", handle_cache_flush},
    {"POST", "/reset_prefix_cache", handle_cache_flush},
    {"POST", "/v1/load_lora_adapter", handle_adapters},
    {"POST", "/v1/unload_lora_adapter", handle_adapters},
};

bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.ends_with("/*")) return path.size() >= pattern.size() && path.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == path;
}

void send_error(HttpReply& reply, const std::string& path, const ApiError& error) {
  HttpReply::Headers headers;
  if (error.retry_after_seconds > 0) headers.emplace_back("Retry-After", std::to_string(error.retry_after_seconds));
  reply.send(error.status, "application/json", error_shape_of(path)(error.status, error.what(), error.param, error.code), std::move(headers));
}

ApiError loading() {
  ApiError error(503, "the model is being loaded; try again in a moment", "", "loading");
  error.retry_after_seconds = 1;
  return error;
}

// Answers /health: 503 until the model is there, and when the engine died.
void health(const ServicePtr& service, HttpReply& reply) {
  if (!service) throw loading();
  if (const std::string fault = service->engine.fault(); !fault.empty()) throw ApiError(503, "the engine has failed: " + fault + "; restart the server", "", "engine_error");
  reply.send(200, "application/json", "{\"status\":\"ok\"}");
}

void dispatch(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  // A HEAD is a GET whose body HTTP leaves out.
  const std::string& method = request.method == "HEAD" ? "GET" : request.method;
  if (request.path == "/health" && method == "GET") return health(service, *reply);
  std::string allowed = request.path == "/health" ? "GET" : "";
  for (const Route& route : kRoutes) {
    if (!matches(route.path, request.path)) continue;
    if (method != route.method) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
      continue;
    }
    if (!service) throw loading();
    return route.handler(service, request, reply);
  }
  if (!allowed.empty()) throw ApiError(405, fmt::format("{} {}: this path takes {}", request.method, request.path, allowed), "", "method_not_allowed");
  throw ApiError(404, fmt::format("there is nothing at {} {}; the endpoints are /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /v1/messages, /v1/models, /health and others",
                                  request.method, shown(request.path)), "", "not_found");
}

}  // namespace

Routes::Routes() = default;
Routes::~Routes() = default;

void Routes::add(const std::string& method, const std::string& path, HttpHandler handler) { others_[path][method] = std::move(handler); }
void Routes::open(std::shared_ptr<const Service> service) {
  const std::lock_guard lock(mutex_);
  service_ = std::move(service);
}
void Routes::close() { open(nullptr); }
std::shared_ptr<const Service> Routes::service() const {
  const std::lock_guard lock(mutex_);
  return service_;
}

void Routes::handle(const HttpRequest& request, std::shared_ptr<HttpReply> reply) const {
  try {
    if (const auto others = others_.find(request.path); others != others_.end()) {
      auto found = others->second.find(request.method);
      if (found == others->second.end() && request.method == "HEAD") found = others->second.find("GET");
      if (found != others->second.end()) return found->second(request, std::move(reply));
    }
    dispatch(service(), request, reply);
  } catch (const ApiError& error) {
    send_error(*reply, request.path, error);
  } catch (const Error& error) {
    send_error(*reply, request.path, ApiError(400, error.what()));
  } catch (const std::exception& error) {
    log_error("{} {} failed: {}", request.method, request.path, error.what());
    send_error(*reply, request.path, ApiError(500, "the server made a mistake with this request; its log says more"));
  }
}

std::string Routes::error_body(int status, const std::string& message, const std::string& path) { return error_shape_of(path)(status, message, "", ""); }

}  // namespace ridge
