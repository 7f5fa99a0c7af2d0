// The listening side: accepts, spreads connections over the I/O threads, and ends them in good order.
#include <sys/resource.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "server/http.h"
#include "server/http_connection.h"

namespace ridge {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr int kSpareFiles = 128;             // for models, logs and the like

// As many open files as the connections need, as far as the system lets us.
int raise_file_limit(int n_connections) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return n_connections;
  const rlim_t wanted = rlim_t(n_connections) + kSpareFiles;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? wanted : std::min(wanted, limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= wanted) return n_connections;
  const int possible = std::max(16, int(limit.rlim_cur) - kSpareFiles);
  log_debug("At most {} connections: this system lets a process open {} files (ulimit -n).", possible, limit.rlim_cur);
  return std::min(n_connections, possible);
}

Tcp::endpoint address_of(asio::io_context& io, const std::string& host, int port) {
  if (port < 0 || port > 65535) fail("port {}: must be 0 (any free one) to 65535", port);
  ErrorCode ec;
  const std::string name = host.empty() ? "0.0.0.0" : host;
  const auto literal = asio::ip::make_address(name, ec);
  if (!ec) return {literal, static_cast<unsigned short>(port)};
  Tcp::resolver resolver(io);
  const auto found = resolver.resolve(name, std::to_string(port), Tcp::resolver::passive, ec);
  if (ec || found.empty()) fail("cannot listen at {}: there is no such address ({}); 127.0.0.1 is this machine alone, 0.0.0.0 every interface", name, ec.message());
  for (const auto& one : found)
    if (one.endpoint().address().is_v4()) return one.endpoint();       // "localhost" is both, and most clients try 127.0.0.1
  return found.begin()->endpoint();
}

}  // namespace

std::string HttpShared::error_body(int status, const std::string& message, const std::string& path) const {
  if (options.error_body) return options.error_body(status, message, path);
  const Json body{{"error", {{"message", message}, {"type", status < 500 ? "invalid_request_error" : "server_error"}, {"param", nullptr}, {"code", status}}}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

struct HttpServer::State {
  std::shared_ptr<HttpShared> shared = std::make_shared<HttpShared>();
  std::vector<std::shared_ptr<HttpLoop>> loops;
  std::unique_ptr<Tcp::acceptor> acceptor;
  std::unique_ptr<asio::steady_timer> pause;
  size_t next_loop = 0;
  int port = 0;
  bool running = false;

  void accept();
  void take(std::shared_ptr<HttpLoop> loop, Tcp::socket socket);
  void on_every_loop(const std::function<void(HttpLoop&)>& work);
};

HttpServer::HttpServer(HttpOptions options, HttpHandler handler) : state_(std::make_unique<State>()) {
  State& s = *state_;
  HttpShared& shared = *s.shared;
  options.max_connections = raise_file_limit(options.max_connections);
  if (!options.tls_certificate.empty() || !options.tls_key.empty()) shared.tls = make_tls_context(options.tls_certificate, options.tls_key);
  shared.options = std::move(options);
  shared.handler = std::move(handler);
  for (int i = 0; i < std::max(1, shared.options.n_threads); ++i) s.loops.push_back(std::make_shared<HttpLoop>());
  asio::io_context& io = s.loops[0]->io.context;
  const Tcp::endpoint at = address_of(io, shared.options.host, shared.options.port);
  s.acceptor = std::make_unique<Tcp::acceptor>(io);
  s.pause = std::make_unique<asio::steady_timer>(io);
  ErrorCode ec;
  s.acceptor->open(at.protocol(), ec);
  if (!ec) s.acceptor->set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) s.acceptor->bind(at, ec);
  if (!ec) s.acceptor->listen(4096, ec);
  if (ec == asio::error::address_in_use) fail("{}:{} is taken: another program listens there; choose another --port", shared.options.host, shared.options.port);
  if (ec) fail("cannot listen at {}:{}: {}", shared.options.host, shared.options.port, ec.message());
  s.port = s.acceptor->local_endpoint(ec).port();
}

HttpServer::~HttpServer() { stop(std::chrono::milliseconds(0)); }

int HttpServer::port() const { return state_->port; }

int HttpServer::n_connections() const { return state_->shared->n_connections; }

void HttpServer::start() {
  State& s = *state_;
  s.running = true;
  s.shared->pool.start(std::max(1, s.shared->options.n_handlers));
  s.accept();
  for (const auto& loop : s.loops) loop->io.start();
}

void HttpServer::State::accept() {
  const auto loop = loops[next_loop++ % loops.size()];
  acceptor->async_accept(loop->io.context, [this, loop](ErrorCode ec, Tcp::socket socket) {
    if (ec == asio::error::operation_aborted || !acceptor->is_open()) return;
    if (!ec) take(loop, std::move(socket));
    if (ec == asio::error::no_descriptors || ec == asio::error::no_buffer_space || ec == asio::error::no_memory) {
      pause->expires_after(std::chrono::milliseconds(20));       // until somebody closes
      pause->async_wait([this](ErrorCode stopped) { if (!stopped) accept(); });
      return;
    }
    accept();
  });
}

void HttpServer::State::take(std::shared_ptr<HttpLoop> loop, Tcp::socket socket) {
  ErrorCode ec;
  const auto remote = socket.remote_endpoint(ec);
  if (ec) return;
  if (shared->n_connections >= shared->options.max_connections) {
    const std::string body = shared->error_body(503, "this server has all the connections it can hold; try again", "");
    const std::string text = fmt::format("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n{}", body.size(), body);
    [[maybe_unused]] const ssize_t n = ::send(socket.native_handle(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return;
  }
  auto connection = std::make_shared<HttpConnection>(loop, shared, std::move(socket), remote.address().to_string());
  loop->io.push([connection] { connection->start(); });
}

// Waits until every I/O thread has done it, and with it all that was pushed before.
void HttpServer::State::on_every_loop(const std::function<void(HttpLoop&)>& work) {
  std::vector<std::future<void>> done;
  for (const auto& loop : loops) {
    auto promise = std::make_shared<std::promise<void>>();
    done.push_back(promise->get_future());
    loop->io.push([loop, promise, &work] {
      work(*loop);
      promise->set_value();
    });
  }
  for (auto& one : done) one.wait();
}

void HttpServer::stop(std::chrono::milliseconds at_most) {
  State& s = *state_;
  if (!std::exchange(s.running, false)) return;
  const auto until = std::chrono::steady_clock::now() + at_most;
  s.shared->stopping = true;
  const auto stop_all = [](bool now) {
    return [now](HttpLoop& loop) {
      for (HttpConnection* connection : std::vector<HttpConnection*>(loop.connections.begin(), loop.connections.end()))
        if (loop.connections.contains(connection)) connection->stop(now);
    };
  };
  s.on_every_loop([&](HttpLoop& loop) {
    if (&loop != s.loops[0].get()) return;
    ErrorCode ignored;
    s.acceptor->close(ignored);
    s.pause->cancel();
  });
  s.on_every_loop(stop_all(false));
  while (s.shared->n_connections > 0 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  s.on_every_loop(stop_all(true));
  s.shared->pool.stop();
  s.on_every_loop(stop_all(true));           // and what handlers left behind
  for (const auto& loop : s.loops) loop->io.finish();
  for (const auto& loop : s.loops) loop->io.join();
}

}  // namespace ridge
