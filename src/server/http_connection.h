// One connection: requests are taken one after the other (a client may send the next before it has the answer), each given to the handler and answered through its Reply.
// Everything but the constructor runs on the connection's I/O thread. While an answer is made the connection keeps reading, since that is how a client that
// left is noticed.
//
//   handshake -> idle -> head -> body -> reply -> idle ...        one deadline per phase
//                                  \-> linger -> closed           after a refusal or "Connection: close": what still comes is thrown away for a moment, so that
//                                                                 the answer is not lost in a reset
#pragma once
#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "server/handler_pool.h"
#include "server/http.h"
#include "server/http_io.h"
#include "server/http_parser.h"
#include "server/http_wire.h"

namespace ridge {

// What all connections of a server share.
struct HttpShared {
  HttpOptions options;
  HttpHandler handler;
  std::shared_ptr<boost::asio::ssl::context> tls;
  HandlerPool pool;
  std::atomic<int> n_connections{0};
  std::atomic<int64_t> n_body_bytes{0};      // of requests that are arriving or with their handlers
  std::atomic<bool> stopping{false};
  std::string error_body(int status, const std::string& message, const std::string& path) const;
};

class HttpConnection;
struct HttpLoop {
  HttpIo io;
  std::unordered_set<HttpConnection*> connections;      // of this thread
};

// A request and the state of its answer. All but the atomics belongs to the I/O thread; the request is the handler's to read until it returns.
struct HttpExchange {
  HttpRequest request;
  std::atomic<bool> gone{false}, ended{false};
  bool handler_running = false, begun = false, chunked = false, keep_alive = true, http_1_0 = false;
  std::string comment, note;
  std::vector<std::function<void()>> deferred;          // posted while the handler ran
  std::function<void()> on_gone;
  int status = 0;
  int64_t n_sent = 0, n_body = 0;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Exchange = std::shared_ptr<HttpExchange>;
  using Headers = HttpReply::Headers;
  HttpConnection(std::shared_ptr<HttpLoop> loop, std::shared_ptr<HttpShared> shared, boost::asio::ip::tcp::socket socket, std::string peer);
  ~HttpConnection();
  void start();
  void stop(bool now);                       // closes what waits for a request; with `now` also what is being answered

  // What a Reply asks for.
  HttpIo& io() { return loop_->io; }
  void send(const Exchange& x, int status, const std::string& content_type, std::string body, const Headers& headers);
  void begin(const Exchange& x, int status, const std::string& content_type, std::string comment, const Headers& headers);
  void write(const Exchange& x, std::string_view piece);
  void end(const Exchange& x);
  void on_gone(const Exchange& x, std::function<void()> then);
  void post(const Exchange& x, std::function<void()> work);
  void reply_dropped(const Exchange& x);
  void handler_returned(const Exchange& x);

 private:
  enum class Phase { handshake, idle, head, body, reply, linger, closed };
  using Clock = std::chrono::steady_clock;
  bool answers(const Exchange& x) const { return exchange_ == x && phase_ == Phase::reply && !x->ended; }
  void enter(Phase phase);
  void arm();
  void on_timer();
  void read();
  void on_read(boost::system::error_code ec, size_t n);
  void take(std::string_view bytes);
  bool check_head();                         // false: refused
  bool hold_body(int64_t n_bytes);           // false: more than all connections together may
  void begin_exchange();
  bool is_preflight(const HttpRequest& request) const;
  void refuse(int status, const std::string& message, const Headers& headers = {});
  std::string head_of(const HttpExchange& x, const std::string& content_type, const Headers& headers) const;
  std::string cors_headers(const HttpRequest& request) const;
  void queue(std::string_view bytes);
  void flush();
  void on_written(boost::system::error_code ec, size_t n);
  void finish_exchange();
  void linger();
  void lose_client();
  void fire_gone(HttpExchange& x);
  void log(const HttpExchange& x) const;
  void close();

  std::shared_ptr<HttpLoop> loop_;           // outlives the socket
  std::shared_ptr<HttpShared> shared_;
  std::unique_ptr<HttpWire> wire_;
  std::string peer_;
  HttpParser parser_;
  Phase phase_ = Phase::handshake;
  Exchange exchange_;
  boost::asio::steady_timer timer_;
  Clock::time_point deadline_ = Clock::time_point::max(), comment_at_ = Clock::time_point::max(), armed_at_ = Clock::time_point::max();
  std::string chunk_, input_;                // what is read into; what was read and not yet taken
  std::string output_, sending_;             // to be sent; being sent
  size_t n_sending_done_ = 0;
  int64_t n_lingered_ = 0, n_held_ = 0;
  bool reading_ = false, writing_ = false, flush_pending_ = false;
};

}  // namespace ridge
