#include "server/http_connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "server/access_log.h"
#include "server/http_text.h"

namespace ridge {
namespace {

using ErrorCode = boost::system::error_code;

constexpr size_t kSmallRead = 4096, kLargeRead = 64 << 10;
constexpr size_t kMaxPipelined = 128 << 10;                   // bytes of further requests kept while one is answered
constexpr int64_t kMaxLingered = 16 << 20;
constexpr auto kLinger = std::chrono::seconds(2);

// The face of an exchange that handlers hold. What is called on the connection's own thread happens at once.
class Reply : public HttpReply {
 public:
  Reply(std::shared_ptr<HttpConnection> connection, HttpConnection::Exchange exchange) : c_(std::move(connection)), x_(std::move(exchange)) {}
  ~Reply() override {
    if (!x_->ended && !x_->gone) c_->io().push([c = c_, x = x_] { c->reply_dropped(x); });
  }
  void send(int status, std::string content_type, std::string body, Headers headers) override {
    run([c = c_, x = x_, status, type = std::move(content_type), body = std::move(body), headers = std::move(headers)] { c->send(x, status, type, body, headers); });
  }
  void begin(int status, std::string content_type, std::string comment, Headers headers) override {
    run([c = c_, x = x_, status, type = std::move(content_type), comment = std::move(comment), headers = std::move(headers)] { c->begin(x, status, type, comment, headers); });
  }
  void write(std::string piece) override {
    run([c = c_, x = x_, piece = std::move(piece)] { c->write(x, piece); });
  }
  void end() override {
    run([c = c_, x = x_] { c->end(x); });
  }
  void on_gone(std::function<void()> then) override {
    run([c = c_, x = x_, then = std::move(then)] { c->on_gone(x, then); });
  }
  bool gone() const override { return x_->gone; }
  void post(std::function<void()> work) override {
    c_->io().push([c = c_, x = x_, work = std::move(work)]() mutable { c->post(x, std::move(work)); });
  }
  void note(std::string text) override {
    run([x = x_, text = std::move(text)] { x->note += (x->note.empty() ? "" : " ") + text; });
  }

 private:
  template <class F>
  void run(F work) {
    if (c_->io().on_this_thread()) work();
    else c_->io().push(std::move(work));
  }
  std::shared_ptr<HttpConnection> c_;
  HttpConnection::Exchange x_;
};

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpLoop> loop, std::shared_ptr<HttpShared> shared, boost::asio::ip::tcp::socket socket, std::string peer)
    : loop_(std::move(loop)), shared_(std::move(shared)), wire_(make_wire(std::move(socket), shared_->tls.get())), peer_(std::move(peer)),
      parser_({.header_bytes = shared_->options.max_header_bytes, .body_bytes = shared_->options.max_body_bytes}), timer_(loop_->io.context) {
  shared_->n_connections++;
}

HttpConnection::~HttpConnection() {
  if (phase_ != Phase::closed) shared_->n_connections--;
}

void HttpConnection::start() {
  loop_->connections.insert(this);
  ErrorCode ignored;
  auto& socket = wire_->socket();
  socket.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  // What a client that vanished without a word leaves unacknowledged ends the connection after the same patience as a full buffer.
  const unsigned patience = unsigned(std::chrono::milliseconds(shared_->options.write_timeout).count());
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
  if (shared_->stopping) return close();
  enter(Phase::handshake);
  wire_->handshake([self = shared_from_this()](ErrorCode ec, size_t) {
    if (self->phase_ == Phase::closed) return;
    if (ec) return self->close();
    self->enter(Phase::idle);
    self->read();
  });
}

void HttpConnection::stop(bool now) {
  const bool waits = phase_ == Phase::handshake || phase_ == Phase::idle || phase_ == Phase::head || phase_ == Phase::body;
  if (now || waits) close();
}

void HttpConnection::enter(Phase phase) {
  phase_ = phase;
  const HttpOptions& o = shared_->options;
  const auto now = Clock::now();
  switch (phase) {
    case Phase::handshake:
    case Phase::head: deadline_ = now + o.header_timeout; break;
    case Phase::idle: deadline_ = now + o.idle_timeout; break;
    case Phase::body: deadline_ = now + o.body_timeout; break;
    case Phase::linger: deadline_ = now + kLinger; break;
    case Phase::reply:
    case Phase::closed: deadline_ = Clock::time_point::max(); break;
  }
  comment_at_ = Clock::time_point::max();
  arm();
}

// The timer is only ever moved earlier: a deadline that moved on is found when the timer fires. A stream of a thousand pieces sets it once a phase.
void HttpConnection::arm() {
  const auto next = std::min(deadline_, comment_at_);
  if (next >= armed_at_) return;
  armed_at_ = next;
  timer_.expires_at(next);
  timer_.async_wait([self = shared_from_this()](ErrorCode ec) {
    if (!ec && self->phase_ != Phase::closed) self->on_timer();
  });
}

void HttpConnection::on_timer() {
  armed_at_ = Clock::time_point::max();
  const auto now = Clock::now();
  if (now >= deadline_) {
    deadline_ = Clock::time_point::max();
    if (phase_ == Phase::head || phase_ == Phase::body)
      return refuse(408, fmt::format("the {} did not arrive within {} seconds", phase_ == Phase::head ? "request's head" : "request's body",
                                     (phase_ == Phase::head ? shared_->options.header_timeout : shared_->options.body_timeout).count()));
    return close();
  }
  if (now >= comment_at_ && exchange_) {
    comment_at_ = now + shared_->options.comment_interval;
    write(exchange_, std::string(exchange_->comment));
  }
  arm();
}

void HttpConnection::read() {
  if (reading_ || phase_ == Phase::closed) return;
  if (phase_ == Phase::reply && input_.size() >= kMaxPipelined) return;
  reading_ = true;
  const size_t wanted = phase_ == Phase::body ? kLargeRead : kSmallRead;
  if (chunk_.size() > wanted) chunk_ = {};   // a stream of an hour need not hold on to what its prompt took
  chunk_.resize(wanted);
  wire_->read_some(chunk_.data(), chunk_.size(), [self = shared_from_this()](ErrorCode ec, size_t n) { self->on_read(ec, n); });
}

void HttpConnection::on_read(ErrorCode ec, size_t n) {
  reading_ = false;
  if (phase_ == Phase::closed) return;
  if (ec) return close();
  const std::string_view bytes(chunk_.data(), n);
  if (phase_ == Phase::linger) {
    n_lingered_ += int64_t(n);
    if (n_lingered_ > kMaxLingered) return close();
  } else if (phase_ == Phase::reply) {
    input_ += bytes;
  } else if (input_.empty()) {
    take(bytes);
  } else {
    input_ += bytes;
    take(std::exchange(input_, {}));
  }
  read();
}

// Feeds the parser until it has a request, wants more or refuses; keeps what is left.
void HttpConnection::take(std::string_view bytes) {
  for (;;) {
    if (phase_ == Phase::idle) {
      while (!bytes.empty() && (bytes[0] == '\r' || bytes[0] == '\n')) bytes.remove_prefix(1);     // empty lines between requests are harmless
      if (bytes.empty()) break;
      enter(Phase::head);
    }
    size_t n_taken = 0;
    const HttpParser::Result result = parser_.put(bytes, &n_taken);
    bytes.remove_prefix(n_taken);
    if (result == HttpParser::Result::refused) return refuse(parser_.status(), parser_.why());
    if (!hold_body(int64_t(parser_.request().body.size())))
      return refuse(503, "this server holds as many bytes of requests as it may; try again", {{"Retry-After", "1"}});
    if (result == HttpParser::Result::head) {
      if (!check_head()) return;
      enter(Phase::body);
      if (parser_.expects_continue() && bytes.empty()) queue("HTTP/1.1 100 Continue\r\n\r\n");
    } else if (result == HttpParser::Result::complete) {
      input_.assign(bytes);
      return begin_exchange();
    } else {
      break;
    }
  }
  input_.assign(bytes);
}

// Bodies of all connections together have a limit, so that many large requests at once do not take the memory of the answers.
bool HttpConnection::hold_body(int64_t n_bytes) {
  const int64_t total = shared_->n_body_bytes += n_bytes - n_held_;
  n_held_ = n_bytes;
  return total <= shared_->options.max_bodies_bytes || n_bytes == 0;
}

bool HttpConnection::is_preflight(const HttpRequest& request) const {
  return !shared_->options.cors_origin.empty() && request.method == "OPTIONS" && !request.header("origin").empty() && !request.header("access-control-request-method").empty();
}

// Who may not ask is told before the body is taken.
bool HttpConnection::check_head() {
  HttpRequest& request = parser_.request();
  const HttpOptions& o = shared_->options;
  if (o.api_keys.empty() || is_preflight(request) || std::find(o.open_paths.begin(), o.open_paths.end(), request.path) != o.open_paths.end()) return true;
  std::string_view key = request.header("x-api-key");
  if (const std::string_view bearer = request.header("authorization"); bearer.size() > 7 && equal_ignoring_case(bearer.substr(0, 7), "bearer ")) key = bearer.substr(7);
  while (key.starts_with(' ')) key.remove_prefix(1);
  if (matches_any_key(key, o.api_keys)) return true;
  refuse(401, key.empty() ? "an API key is needed: send it as \"Authorization: Bearer KEY\" or as \"x-api-key: KEY\"" : "the API key is not one of this server's", {{"WWW-Authenticate", "Bearer"}});
  return false;
}

void HttpConnection::begin_exchange() {
  auto x = std::make_shared<HttpExchange>();
  x->request = std::move(parser_.request());
  x->request.id = request_id_from(x->request.header("x-request-id"));
  x->request.trace_id = trace_id_from(x->request.header("traceparent"));
  x->request.peer = peer_;
  x->keep_alive = parser_.keep_alive();
  x->http_1_0 = parser_.http_1_0();
  x->n_body = std::exchange(n_held_, 0);     // until the handler returns
  exchange_ = x;
  enter(Phase::reply);
  if (is_preflight(x->request)) {
    shared_->n_body_bytes -= x->n_body;
    const std::string_view wanted = x->request.header("access-control-request-headers");
    return send(x, 204, "", "", {{"Access-Control-Allow-Methods", "GET, POST, PUT, DELETE, OPTIONS"}, {"Access-Control-Allow-Headers", wanted.empty() ? "*" : std::string(wanted)},
                                 {"Access-Control-Max-Age", "86400"}});
  }
  x->handler_running = true;
  shared_->pool.submit([self = shared_from_this(), x] {
    std::string message;
    int status = 0;
    auto reply = std::make_shared<Reply>(self, x);
    try {
      self->shared_->handler(x->request, reply);
    } catch (const Error& e) {
      status = 400, message = e.what();
    } catch (const std::bad_alloc&) {
      status = 503, message = "not enough memory for this request";
    } catch (const std::exception& e) {
      status = 500, message = fmt::format("the server failed at this request: {}", e.what());
      log_error("Request {}: {} {}: {}", x->request.id, x->request.method, log_value(x->request.path), e.what());
    }
    if (status) reply->send(status, "application/json", self->shared_->error_body(status, message, x->request.path), {});
    reply.reset();
    self->io().push([self, x] { self->handler_returned(x); });
  });
}

void HttpConnection::refuse(int status, const std::string& message, const Headers& headers) {
  auto x = std::make_shared<HttpExchange>();
  x->request = std::move(parser_.request());
  x->request.id = request_id_from(x->request.header("x-request-id"));
  x->request.trace_id = trace_id_from(x->request.header("traceparent"));
  x->keep_alive = false;
  x->request.body = {};
  hold_body(0);
  input_.clear();
  exchange_ = x;
  enter(Phase::reply);
  send(x, status, "application/json", shared_->error_body(status, message, x->request.path), headers);
}

std::string HttpConnection::cors_headers(const HttpRequest& request) const {
  const std::string& allowed = shared_->options.cors_origin;
  if (allowed.empty()) return "";
  constexpr const char* kExposed = "Access-Control-Expose-Headers: X-Request-Id, Retry-After\r\n";
  if (allowed == "*") return fmt::format("Access-Control-Allow-Origin: *\r\n{}", kExposed);
  const std::string_view origin = request.header("origin");
  std::string_view rest = allowed;
  while (!rest.empty() && !origin.empty()) {
    std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
    while (one.starts_with(' ')) one.remove_prefix(1);
    if (one == origin) return fmt::format("Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n{}", origin, kExposed);
  }
  return "Vary: Origin\r\n";
}

std::string HttpConnection::head_of(const HttpExchange& x, const std::string& content_type, const Headers& headers) const {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nServer: ridge\r\nX-Request-Id: {}\r\n", x.status, reason_phrase(x.status), http_date(), x.request.id);
  if (!content_type.empty()) head += fmt::format("Content-Type: {}\r\nX-Content-Type-Options: nosniff\r\n", content_type);
  for (const auto& [name, value] : headers)
    if (name.find_first_of("\r\n:") == std::string::npos && value.find_first_of("\r\n") == std::string::npos) head += fmt::format("{}: {}\r\n", name, value);
  head += cors_headers(x.request);
  if (!x.keep_alive) head += "Connection: close\r\n";
  else if (x.http_1_0) head += "Connection: keep-alive\r\n";
  return head;
}

void HttpConnection::send(const Exchange& x, int status, const std::string& content_type, std::string body, const Headers& headers) {
  if (!answers(x) || x->begun) return;
  x->begun = x->ended = true;
  x->status = status;
  x->n_sent = int64_t(body.size());
  if (shared_->stopping) x->keep_alive = false;
  std::string head = head_of(*x, content_type, headers);
  if (status != 204 && status != 304) head += fmt::format("Content-Length: {}\r\n", body.size());
  queue(head + "\r\n");
  if (x->request.method != "HEAD" && status != 204 && status != 304) queue(body);
}

void HttpConnection::begin(const Exchange& x, int status, const std::string& content_type, std::string comment, const Headers& headers) {
  if (!answers(x) || x->begun) return;
  x->begun = true;
  x->status = status;
  x->comment = std::move(comment);
  x->chunked = !x->http_1_0;
  if (shared_->stopping || x->http_1_0) x->keep_alive = false;
  queue(head_of(*x, content_type, headers) + (x->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n"));
  if (!x->comment.empty()) {
    comment_at_ = Clock::now() + shared_->options.comment_interval;
    arm();
  }
}

void HttpConnection::write(const Exchange& x, std::string_view piece) {
  if (!answers(x) || !x->begun || piece.empty()) return;
  x->n_sent += int64_t(piece.size());
  if (comment_at_ != Clock::time_point::max()) comment_at_ = Clock::now() + shared_->options.comment_interval;
  if (x->request.method == "HEAD") return;
  if (x->chunked) queue(fmt::format("{:x}\r\n", piece.size()));
  queue(piece);
  if (x->chunked) queue("\r\n");
  if (int64_t(output_.size() + sending_.size() - n_sending_done_) > shared_->options.max_queued_bytes) {
    log_info("Request {}: the client reads too slowly ({} MB wait for it); dropped.", x->request.id, shared_->options.max_queued_bytes >> 20);
    close();
  }
}

void HttpConnection::end(const Exchange& x) {
  if (!answers(x) || !x->begun) return;
  x->ended = true;
  comment_at_ = Clock::time_point::max();
  if (x->chunked && x->request.method != "HEAD") queue("0\r\n\r\n");
  else queue("");
}

void HttpConnection::on_gone(const Exchange& x, std::function<void()> then) {
  if (x->ended) return;
  x->on_gone = std::move(then);
  if (x->gone && !x->handler_running) fire_gone(*x);
}

void HttpConnection::post(const Exchange& x, std::function<void()> work) {
  if (x->handler_running) x->deferred.push_back(std::move(work));
  else work();
}

void HttpConnection::reply_dropped(const Exchange& x) {
  if (!answers(x)) return;
  if (x->begun) return close();
  send(x, 500, "application/json", shared_->error_body(500, "the server did not answer this request", x->request.path), {});
}

void HttpConnection::handler_returned(const Exchange& x) {
  x->handler_running = false;
  x->request.body = {};
  shared_->n_body_bytes -= x->n_body;
  for (auto& work : std::exchange(x->deferred, {})) work();
  if (x->gone) fire_gone(*x);
}

void HttpConnection::queue(std::string_view bytes) {
  output_ += bytes;
  if (flush_pending_ || writing_) return;
  flush_pending_ = true;
  loop_->io.after_inbox([self = shared_from_this()] {
    self->flush_pending_ = false;
    self->flush();
  });
}

void HttpConnection::flush() {
  if (writing_ || phase_ == Phase::closed) return;
  if (n_sending_done_ == sending_.size()) {
    sending_.clear();
    n_sending_done_ = 0;
    std::swap(sending_, output_);
  }
  if (sending_.empty()) {
    if (sending_.capacity() > kLargeRead) sending_ = {}, output_ = {};
    if (exchange_ && exchange_->ended) finish_exchange();
    return;
  }
  writing_ = true;
  if (phase_ == Phase::reply) {
    deadline_ = Clock::now() + shared_->options.write_timeout;
    arm();
  }
  wire_->write_some(sending_.data() + n_sending_done_, sending_.size() - n_sending_done_, [self = shared_from_this()](ErrorCode ec, size_t n) { self->on_written(ec, n); });
}

void HttpConnection::on_written(ErrorCode ec, size_t n) {
  writing_ = false;
  if (phase_ == Phase::closed) return;
  if (ec) return close();
  n_sending_done_ += n;
  if (phase_ == Phase::reply) deadline_ = Clock::time_point::max();
  flush();
}

void HttpConnection::finish_exchange() {
  const Exchange x = std::exchange(exchange_, nullptr);
  x->on_gone = {};
  log(*x);
  if (!x->keep_alive || shared_->stopping) return linger();
  parser_.reset();
  enter(Phase::idle);
  if (!input_.empty()) take(std::exchange(input_, {}));
  read();
}

void HttpConnection::linger() {
  enter(Phase::linger);
  input_.clear();
  wire_->end_writing([](ErrorCode, size_t) {});
  read();
}

void HttpConnection::lose_client() {
  const Exchange x = std::exchange(exchange_, nullptr);
  if (!x) return;
  if (!x->ended) x->status = 499;
  log(*x);
  if (x->ended) {
    x->on_gone = {};
    return;
  }
  x->gone = true;
  if (!x->handler_running) fire_gone(*x);
}

void HttpConnection::fire_gone(HttpExchange& x) {
  if (const auto then = std::exchange(x.on_gone, {})) then();
}

void HttpConnection::log(const HttpExchange& x) const {
  const HttpOptions& o = shared_->options;
  if (!o.access_log) return;
  if (x.status < 400 && std::find(o.quiet_paths.begin(), o.quiet_paths.end(), x.request.path) != o.quiet_paths.end()) return;
  const std::string line = access_line({.id = x.request.id, .trace_id = x.request.trace_id, .peer = peer_, .method = x.request.method, .path = x.request.path, .status = x.status,
                                        .n_bytes = x.n_sent, .seconds = std::chrono::duration<double>(Clock::now() - x.start).count(), .note = x.note}, o.log_json);
  if (o.log_sink) o.log_sink(line);
  else log_info("{}", line);
}

void HttpConnection::close() {
  if (phase_ == Phase::closed) return;
  const auto self = shared_from_this();      // the list and the handlers may hold the last references
  enter(Phase::closed);
  hold_body(0);
  shared_->n_connections--;
  loop_->connections.erase(this);
  ErrorCode ignored;
  timer_.cancel();
  wire_->socket().close(ignored);
  lose_client();
}

}  // namespace ridge
