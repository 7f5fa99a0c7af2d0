#include "server/http_wire.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl.hpp>

#include "base/error.h"

namespace ridge {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using Socket = asio::ip::tcp::socket;

class Plain : public HttpWire {
 public:
  explicit Plain(Socket socket) : socket_(std::move(socket)) {}
  void handshake(Done done) override { done({}, 0); }
  void read_some(char* to, size_t n, Done done) override { socket_.async_read_some(asio::buffer(to, n), std::move(done)); }
  void write_some(const char* from, size_t n, Done done) override { socket_.async_write_some(asio::buffer(from, n), std::move(done)); }
  void end_writing(Done done) override {
    ErrorCode ec;
    socket_.shutdown(Socket::shutdown_send, ec);
    done(ec, 0);
  }
  Socket& socket() override { return socket_; }

 private:
  Socket socket_;
};

class Tls : public HttpWire {
 public:
  Tls(Socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}
  void handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, [done = std::move(done)](ErrorCode ec) { done(ec, 0); });
  }
  void read_some(char* to, size_t n, Done done) override { stream_.async_read_some(asio::buffer(to, n), std::move(done)); }
  void write_some(const char* from, size_t n, Done done) override { stream_.async_write_some(asio::buffer(from, n), std::move(done)); }
  // Every reply says its own length, so a close_notify is a courtesy: a half-closed TLS stream cannot be read in peace by asio, and the socket is simply ended.
  void end_writing(Done done) override {
    ErrorCode ec;
    stream_.next_layer().shutdown(Socket::shutdown_send, ec);
    done(ec, 0);
  }
  Socket& socket() override { return stream_.next_layer(); }

 private:
  asio::ssl::stream<Socket> stream_;
};

}  // namespace

std::shared_ptr<asio::ssl::context> make_tls_context(const std::string& certificate, const std::string& key) {
  if (certificate.empty() || key.empty()) fail("TLS needs both a certificate and a key (PEM files)");
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  ErrorCode ec;
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, ec);
  context->use_certificate_chain_file(certificate, ec);
  if (ec) fail("the TLS certificate {} cannot be used: {}; a PEM file with the whole chain is needed", certificate, ec.message());
  context->use_private_key_file(key, asio::ssl::context::pem, ec);
  if (ec) fail("the TLS key {} cannot be used: {}; it must be an unencrypted PEM file that belongs to {}", key, ec.message(), certificate);
  return context;
}

std::unique_ptr<HttpWire> make_wire(Socket socket, asio::ssl::context* tls) {
  if (tls) return std::make_unique<Tls>(std::move(socket), *tls);
  return std::make_unique<Plain>(std::move(socket));
}

}  // namespace ridge
