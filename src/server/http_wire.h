// The bytes of one connection, in the clear or through TLS: the two look alike from above, so that what speaks HTTP is compiled once.
#pragma once
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>

namespace boost::asio::ssl { class context; }

namespace ridge {

class HttpWire {
 public:
  using Done = std::function<void(boost::system::error_code ec, size_t n)>;
  virtual ~HttpWire() = default;
  virtual void handshake(Done done) = 0;     // at once in the clear
  virtual void read_some(char* to, size_t n, Done done) = 0;
  virtual void write_some(const char* from, size_t n, Done done) = 0;
  virtual void end_writing(Done done) = 0;   // says that nothing follows; the other side may still be read
  virtual boost::asio::ip::tcp::socket& socket() = 0;
};

// Throws Error when the certificate or the key cannot be read or do not belong together.
std::shared_ptr<boost::asio::ssl::context> make_tls_context(const std::string& certificate, const std::string& key);
std::unique_ptr<HttpWire> make_wire(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls);

}  // namespace ridge
