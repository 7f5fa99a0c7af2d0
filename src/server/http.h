// HTTP/1.1 on Boost.Beast, as little of it as handlers need: a request with its whole body, and a reply that may be sent at once or streamed.
// Connections live on a few I/O threads; handlers run on a small pool beside them, so that a long prompt or a large grammar holds up nobody's stream. A reply may be used
// from any thread (the engine's sink writes to it): every call only pushes to the connection's thread, without a lock. Slow readers are given `max_queued_bytes` and
// `write_timeout`, then dropped.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge {

struct HttpRequest {
  std::string method, path;                  // the path is percent-decoded, without the query
  std::vector<std::pair<std::string, std::string>> query, headers;      // header names in lower case
  std::string body;
  std::string id;                            // X-Request-Id of the client, or one made here; comes back as a header and is in every log line
  std::string trace_id;                      // of a W3C traceparent header, or made here
  std::string peer;                          // address of the client
  std::string_view header(std::string_view name) const;     // empty when absent
  std::string_view query_value(std::string_view name) const;
};

class HttpReply {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;
  virtual ~HttpReply() = default;            // a reply that was never begun is answered with 500

  virtual void send(int status, std::string content_type, std::string body, Headers headers = {}) = 0;
  // A body in pieces (chunked transfer): begin, write any number of times, end. With `keep_alive_comment` that text is sent whenever nothing was written for
  // `HttpOptions::comment_interval` (an SSE comment during a long prefill).
  virtual void begin(int status, std::string content_type, std::string keep_alive_comment = {}, Headers headers = {}) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  // Called once, on an I/O thread, when the client went away (or was dropped) before the reply was complete; at once when it is gone already. Never while the handler runs.
  virtual void on_gone(std::function<void()> then) = 0;
  virtual bool gone() const = 0;
  // Runs `work` on the connection's thread, in order with other work posted and never while the handler runs: where the text of an event is made, so that the engine's
  // thread need not. It runs when the client has gone, too; after HttpServer::stop it does not.
  virtual void post(std::function<void()> work) = 0;
  // Figures for the access log: what the request cost, as "key=value" pairs.
  virtual void note(std::string text) = 0;
};

using HttpHandler = std::function<void(const HttpRequest& request, std::shared_ptr<HttpReply> reply)>;

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                           // 0: any free one
  int n_threads = 2, n_handlers = 4;         // I/O threads, and threads that handlers run on
  int max_header_bytes = 64 << 10;
  int64_t max_body_bytes = 32 << 20, max_bodies_bytes = int64_t{1} << 30;       // of one request; of all that are arriving
  int max_connections = 20000;
  int64_t max_queued_bytes = 8 << 20;        // of one reply, not yet taken by the client
  std::chrono::seconds header_timeout{10}, body_timeout{60}, idle_timeout{75}, write_timeout{30};
  std::chrono::milliseconds comment_interval{10000};
  std::vector<std::string> api_keys;         // empty: open. Asked for as "Authorization: Bearer" or "x-api-key", everywhere but on the open paths
  std::vector<std::string> open_paths{"/health"};
  std::string cors_origin;                   // origins that pages may ask from, with commas between; "*": any; empty: no CORS headers
  std::string tls_certificate, tls_key;      // PEM files; empty: plain HTTP
  bool access_log = true;
  bool log_json = false;
  std::vector<std::string> quiet_paths{"/health", "/metrics", "/live"};        // polled all the time: logged only when they fail
  std::function<void(const std::string& line)> log_sink;                       // where the lines go; empty: the log
  // Makes the body of an error that HTTP itself finds (400, 401, 404, 408, 413, 431, 503), in the shape of the API that the path belongs to.
  std::function<std::string(int status, const std::string& message, const std::string& path)> error_body;
};

class HttpServer {
 public:
  // Binds at once; throws Error when the address is taken, naming it.
  HttpServer(HttpOptions options, HttpHandler handler);
  ~HttpServer();
  int port() const;
  int n_connections() const;
  void start();                              // returns; the I/O threads run
  // No new connections; replies that are under way may end until the time is up. Returns when all is closed.
  void stop(std::chrono::milliseconds at_most);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ridge
