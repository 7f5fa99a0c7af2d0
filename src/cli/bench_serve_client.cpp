#include "cli/bench_serve_client.h"

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "cli/http_client.h"

namespace ridge::load {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Plain = beast::tcp_stream;
using Secure = beast::ssl_stream<beast::tcp_stream>;
using Nothing = asio::awaitable<void>;

template <class Stream> struct Connection {
  std::unique_ptr<Stream> stream;
  beast::flat_buffer buffer;
  bool used = false;                                   // a kept one may have been closed by the server in the meantime
};

// All streams of one load. Everything runs on one thread, so nothing is locked.
template <class Stream> class Load {
 public:
  Load(const ClientOptions& client, const RequestFlags& request, const std::vector<Conversation>& all, const std::function<void(size_t)>& progress)
      : client_(client), request_(request), all_(all), progress_(progress), url_(parse_url(client.base_url)) {
    Tcp::resolver resolver(io_);
    ErrorCode fault;
    addresses_ = resolver.resolve(url_.host, url_.port, fault);
    if (fault) fail("--base-url {}: cannot find {}: {}", client.base_url, url_.host, fault.message());
    tls_.set_default_verify_paths();
    tls_.set_verify_mode(client.verify_tls ? asio::ssl::verify_peer : asio::ssl::verify_none);
    outcomes_.reserve(all.size());
  }

  std::vector<Outcome> run(bool closed, int concurrency, double& seconds) {
    begin_ = Clock::now();
    const size_t n_workers = concurrency > 0 ? std::min(size_t(concurrency), all_.size()) : all_.size();
    if (closed || concurrency > 0) {
      for (size_t i = 0; i < n_workers; ++i) asio::co_spawn(io_, worker(closed), asio::detached);
    } else {
      asio::co_spawn(io_, arrivals(), asio::detached);
    }
    io_.run();
    for (const Outcome& o : outcomes_) seconds = std::max(seconds, o.end);
    return std::move(outcomes_);
  }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  Nothing sleep_until(double at) {
    asio::steady_timer timer(io_);
    timer.expires_at(begin_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(at)));
    co_await timer.async_wait(asio::use_awaitable);
  }

  // Takes one conversation after the other.
  Nothing worker(bool closed) {
    while (next_ < all_.size()) {
      const Conversation& conversation = all_[next_++];
      if (!closed) co_await sleep_until(conversation.at);
      co_await converse(conversation, closed ? now() : conversation.at);
    }
  }

  Nothing arrivals() {
    for (const Conversation& conversation : all_) {
      co_await sleep_until(conversation.at);
      asio::co_spawn(io_, converse(conversation, conversation.at), asio::detached);
    }
  }

  Nothing converse(const Conversation& conversation, double due) {
    std::vector<std::string> answers;
    for (size_t t = 0; t < conversation.turns.size(); ++t) {
      AnswerStream answer(t + 1 < conversation.turns.size());
      try {
        const std::string body = request_body(request_, conversation, t, answers);
        co_await exchange(body, answer);
      } catch (const boost::system::system_error& e) {
        answer.outcome.error = e.code().message();     // without the place in Boost's code, which what() adds
      } catch (const std::exception& e) {
        answer.outcome.error = e.what();
      }
      Outcome outcome = std::move(answer.outcome);
      outcome.due = due;
      if (outcome.error.empty() && outcome.n_generated == 0) outcome.error = "the answer was empty";
      if (outcome.error.empty() && outcome.first == 0) outcome.error = "no text in the answer";
      if (outcome.end == 0 || !outcome.error.empty()) outcome.end = now();
      const bool failed = !outcome.error.empty();
      outcomes_.push_back(std::move(outcome));
      progress_(outcomes_.size());
      if (failed) break;
      answers.push_back(std::move(answer.text));
      due = now();
    }
  }

  // One request; a kept connection that turns out to be closed is replaced once.
  Nothing exchange(const std::string& body, AnswerStream& answer) {
    while (true) {
      Connection<Stream> connection;
      if (!idle_.empty()) {
        connection = std::move(idle_.back());
        idle_.pop_back();
      } else {
        co_await connect(connection);
      }
      const bool used = connection.used;
      bool stale = false, keep = false;
      try {
        keep = co_await talk(connection, body, answer);
      } catch (const boost::system::system_error&) {
        if (!used || answer.outcome.first > 0) throw;
        stale = true;
      }
      if (stale) continue;
      if (keep) {
        connection.used = true;
        idle_.push_back(std::move(connection));
      }
      co_return;
    }
  }

  Nothing connect(Connection<Stream>& connection) {
    if constexpr (std::is_same_v<Stream, Plain>) connection.stream = std::make_unique<Plain>(io_);
    else connection.stream = std::make_unique<Secure>(io_, tls_);
    auto& tcp = beast::get_lowest_layer(*connection.stream);
    tcp.expires_after(patience());
    co_await tcp.async_connect(addresses_, asio::use_awaitable);
    tcp.socket().set_option(Tcp::no_delay(true));
    if constexpr (std::is_same_v<Stream, Secure>) {
      SSL_set_tlsext_host_name(connection.stream->native_handle(), url_.host.c_str());
      connection.stream->set_verify_callback(asio::ssl::host_name_verification(url_.host));
      co_await connection.stream->async_handshake(asio::ssl::stream_base::client, asio::use_awaitable);
    }
  }

  // Sends the request and reads the stream to its end; whether the connection can be used again.
  asio::awaitable<bool> talk(Connection<Stream>& connection, const std::string& body, AnswerStream& answer) {
    http::request<http::string_body> message{http::verb::post, path_of(request_.endpoint), 11};
    message.set(http::field::host, url_.host + ":" + url_.port);
    message.set(http::field::content_type, "application/json");
    message.set(http::field::accept, "text/event-stream");
    if (!client_.api_key.empty()) message.set(http::field::authorization, "Bearer " + client_.api_key);
    for (const auto& [name, value] : client_.headers) message.set(name, value);
    message.body() = body;
    message.prepare_payload();
    Stream& stream = *connection.stream;
    auto& tcp = beast::get_lowest_layer(stream);
    tcp.expires_after(patience());
    co_await http::async_write(stream, message, asio::use_awaitable);

    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    co_await http::async_read_header(stream, connection.buffer, parser, asio::use_awaitable);
    const int status = int(parser.get().result_int());
    std::string piece(1 << 14, '\0'), refusal;
    while (!parser.is_done()) {
      parser.get().body().data = piece.data();
      parser.get().body().size = piece.size();
      tcp.expires_after(patience());
      ErrorCode fault;
      co_await http::async_read_some(stream, connection.buffer, parser, asio::redirect_error(asio::use_awaitable, fault));
      if (fault && fault != http::error::need_buffer) throw boost::system::system_error(fault);
      const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
      if (status == 200) answer.feed(got, now());
      else if (refusal.size() < 4096) refusal += got;
    }
    if (status != 200) answer.outcome.error = fmt::format("{} {}", status, refusal.substr(0, 300));
    else if (!answer.done() && answer.outcome.error.empty()) answer.outcome.error = "the stream ended without [DONE]";
    co_return parser.keep_alive();
  }

  std::string path_of(const std::string& endpoint) const { return (url_.target == "/" ? "" : url_.target) + endpoint; }
  std::chrono::milliseconds patience() const { return std::chrono::milliseconds(int64_t(client_.timeout_s * 1000)); }

  const ClientOptions& client_;
  const RequestFlags& request_;
  const std::vector<Conversation>& all_;
  const std::function<void(size_t)>& progress_;
  Url url_;
  asio::io_context io_{1};
  asio::ssl::context tls_{asio::ssl::context::tls_client};
  Tcp::resolver::results_type addresses_;
  std::vector<Connection<Stream>> idle_;
  std::vector<Outcome> outcomes_;
  size_t next_ = 0;
  Clock::time_point begin_;
};

}  // namespace

std::vector<Outcome> run_load(const ClientOptions& client, const RequestFlags& request, const std::vector<Conversation>& all, bool closed, int concurrency, double& seconds,
                              const std::function<void(size_t)>& progress) {
  if (parse_url(client.base_url).scheme == "https") return Load<Secure>(client, request, all, progress).run(closed, concurrency, seconds);
  return Load<Plain>(client, request, all, progress).run(closed, concurrency, seconds);
}

Json get_json(const ClientOptions& client, const std::string& path) {
  FetchRequest request;
  request.url = parse_url(client.base_url);
  request.url.target = (request.url.target == "/" ? "" : request.url.target) + path;
  if (!client.api_key.empty()) request.headers["Authorization"] = "Bearer " + client.api_key;
  for (const auto& [name, value] : client.headers) request.headers[name] = value;
  const FetchResponse response = http_exchange(request);
  if (response.status != 200) fail("{}{} answers {}: {}", client.base_url, path, response.status, response.body.substr(0, 300));
  return parse_json(response.body, client.base_url + path);
}

}  // namespace ridge::load
