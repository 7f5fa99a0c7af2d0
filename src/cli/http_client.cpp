#include "cli/http_client.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>

#include "base/error.h"

namespace ridge {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr auto kPatience = std::chrono::seconds(60);
constexpr uint64_t kMaxBody = 64 << 20;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return out;
}

// One asynchronous operation run to its end: unlike the blocking calls, it honours the stream's time limit.
template <class Stream, class Start>
void await(asio::io_context& io, Stream& stream, const Url& url, const char* doing, Start start, std::initializer_list<ErrorCode> tolerated = {}) {
  ErrorCode result = asio::error::would_block;
  beast::get_lowest_layer(stream).expires_after(kPatience);
  start([&](ErrorCode ec, auto&&...) { result = ec; });
  io.restart();
  io.run();
  if (!result || std::find(tolerated.begin(), tolerated.end(), result) != tolerated.end()) return;
  fail("{} {}: {}", doing, url.host, result == beast::error::timeout ? "no answer for a minute" : result.message());
}

template <class Stream>
FetchResponse exchange(asio::io_context& io, Stream& stream, const FetchRequest& request) {
  const Url& url = request.url;
  http::request<http::empty_body> message{http::string_to_verb(request.method), url.target, 11};
  const bool default_port = url.port == (url.scheme == "https" ? "443" : "80");
  message.set(http::field::host, default_port ? url.host : url.host + ":" + url.port);
  message.set(http::field::user_agent, "ridge/" RIDGE_VERSION);
  message.set(http::field::connection, "close");
  message.set(http::field::accept_encoding, "identity");
  for (const auto& [name, value] : request.headers) message.set(name, value);
  await(io, stream, url, "cannot send to", [&](auto done) { http::async_write(stream, message, done); });

  beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.header_limit(1 << 16);
  parser.body_limit(boost::none);
  if (request.method == "HEAD") parser.skip(true);
  await(io, stream, url, "cannot read from", [&](auto done) { http::async_read_header(stream, buffer, parser, done); });

  FetchResponse response;
  response.status = parser.get().result_int();
  for (const auto& field : parser.get()) response.headers[lower({field.name_string().data(), field.name_string().size()})] = std::string(field.value());
  const bool to_sink = request.sink && (response.status == 200 || response.status == 206);
  std::string piece(1 << 18, '\0');                     // read_some: what came before a transfer broke off has been handed on
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    await(io, stream, url, "the transfer broke off:", [&](auto done) { http::async_read_some(stream, buffer, parser, done); }, {http::error::need_buffer});
    const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
    if (to_sink) {
      if (!request.sink(response, got)) return response;
    } else {
      if (response.body.size() + got.size() > kMaxBody) fail("{} answered {} with more than {} bytes", url.host, url.target, kMaxBody);
      response.body += got;
    }
  }
  return response;
}

}  // namespace

std::string Url::origin() const { return scheme + "://" + host + ":" + port; }

std::string FetchResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Url parse_url(const std::string& url) {
  Url parsed;
  const size_t colon = url.find("://");
  parsed.scheme = colon == std::string::npos ? "" : lower(url.substr(0, colon));
  if (parsed.scheme != "http" && parsed.scheme != "https") fail("'{}' is not an http:// or https:// address", url);
  const size_t begin = colon + 3, slash = std::min(url.find_first_of("/?#", begin), url.size());
  std::string authority = url.substr(begin, slash - begin);
  parsed.target = url.substr(slash, url.find('#', slash) - slash);
  if (!parsed.target.starts_with("/")) parsed.target = "/" + parsed.target;
  const size_t port = authority.rfind(':');
  const bool has_port = port != std::string::npos && authority.find(']', port) == std::string::npos;
  parsed.port = has_port ? authority.substr(port + 1) : parsed.scheme == "https" ? "443" : "80";
  parsed.host = has_port ? authority.substr(0, port) : authority;
  const bool digits = !parsed.port.empty() && std::all_of(parsed.port.begin(), parsed.port.end(), [](char c) { return c >= '0' && c <= '9'; });
  const bool printable = std::all_of(url.begin(), url.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (parsed.host.empty() || !digits || !printable || authority.find('@') != std::string::npos) fail("'{}' is not a usable address", url);
  return parsed;
}

Url resolve_url(const Url& base, const std::string& location) {
  if (location.find("://") != std::string::npos) return parse_url(location);
  if (location.starts_with("//")) return parse_url(base.scheme + ":" + location);
  if (!location.starts_with("/")) fail("{} redirects to '{}', which is no address", base.host, location);
  Url url = parse_url(base.origin() + location);
  return url;
}

FetchResponse http_exchange(const FetchRequest& request) {
  const Url& url = request.url;
  asio::io_context io;
  Tcp::resolver resolver(io);
  ErrorCode ec;
  const auto endpoints = resolver.resolve(url.host, url.port, ec);
  if (ec) fail("cannot find {}: {} (is there a network?)", url.host, ec.message());

  if (url.scheme == "http") {
    beast::tcp_stream stream(io);
    await(io, stream, url, "cannot connect to", [&](auto done) { stream.async_connect(endpoints, done); });
    return exchange(io, stream, request);
  }
  asio::ssl::context tls(asio::ssl::context::tls_client);
  tls.set_default_verify_paths();
  tls.set_verify_mode(asio::ssl::verify_peer);
  beast::ssl_stream<beast::tcp_stream> stream(io, tls);
  stream.set_verify_callback(asio::ssl::host_name_verification(url.host));
  if (!SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str())) fail("cannot use the host name {} for TLS", url.host);
  await(io, stream, url, "cannot connect to", [&](auto done) { beast::get_lowest_layer(stream).async_connect(endpoints, done); });
  await(io, stream, url, "no safe connection to", [&](auto done) { stream.async_handshake(asio::ssl::stream_base::client, done); });
  return exchange(io, stream, request);
}

}  // namespace ridge
