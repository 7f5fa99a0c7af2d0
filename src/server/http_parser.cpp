#include "server/http_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <optional>

#include "base/check.h"
#include "server/http_text.h"

namespace ridge {
namespace {

namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;
using View = boost::beast::string_view;

constexpr int kMaxHeaders = 200;

std::string text(View v) { return {v.data(), v.size()}; }

// Beast calls these with what it has recognised. A body is appended as it arrives, so that memory follows what was sent and not what was announced.
class Parser : public http::basic_parser<true> {
 public:
  HttpRequest request;
  std::string target;
  bool expects_continue = false;
  bool has_host = false;
  int version = 11;

 private:
  void on_request_impl(http::verb, View method, View where, int number, ErrorCode&) override {
    version = number;
    request.method = text(method);
    target = text(where);
  }
  void on_field_impl(http::field, View name, View value, ErrorCode& ec) override {
    if (int(request.headers.size()) >= kMaxHeaders) {
      ec = http::error::header_limit;
      return;
    }
    request.headers.emplace_back(lower_case({name.data(), name.size()}), text(value));
    if (request.headers.back().first == "expect" && equal_ignoring_case(request.headers.back().second, "100-continue")) expects_continue = true;
    if (request.headers.back().first == "host") has_host = true;
  }
  void on_header_impl(ErrorCode&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, ErrorCode&) override {}
  size_t on_body_impl(View piece, ErrorCode&) override {
    request.body.append(piece.data(), piece.size());
    return piece.size();
  }
  void on_chunk_header_impl(uint64_t, View, ErrorCode&) override {}
  size_t on_chunk_body_impl(uint64_t, View piece, ErrorCode&) override {
    request.body.append(piece.data(), piece.size());
    return piece.size();
  }
  void on_finish_impl(ErrorCode&) override {}
  void on_response_impl(int, View, int, ErrorCode&) override {}
};

}  // namespace

struct HttpParser::State {
  Limits limits;
  std::optional<Parser> parser;
  bool said_head = false, begun = false;
  int status = 0;
  std::string why;

  Result refuse(int code, std::string message) {
    status = code;
    why = std::move(message);
    return Result::refused;
  }
  Result refuse(const ErrorCode& ec);
  Result check_head();
};

HttpParser::HttpParser(Limits limits) : state_(std::make_unique<State>()) {
  state_->limits = limits;
  reset();
}
HttpParser::~HttpParser() = default;

void HttpParser::reset() {
  State& s = *state_;
  s.parser.emplace();
  s.parser->header_limit(uint32_t(s.limits.header_bytes));
  s.parser->body_limit(boost::none);         // a Content-Length is judged below, where the path is known
  s.parser->eager(false);                    // stops after the head, so that it can be judged before the body is taken
  s.said_head = s.begun = false;
  s.status = 0;
}

HttpParser::Result HttpParser::put(std::string_view bytes, size_t* n_taken) {
  State& s = *state_;
  CHECK(s.status == 0);
  *n_taken = 0;
  if (!bytes.empty()) s.begun = true;
  while (!s.parser->is_done()) {
    const std::string_view rest = bytes.substr(*n_taken);
    if (rest.empty() && !s.parser->is_header_done()) return Result::need_more;
    if (rest.empty() && s.said_head) return Result::need_more;
    ErrorCode ec;
    if (!rest.empty()) *n_taken += s.parser->put(boost::asio::const_buffer(rest.data(), rest.size()), ec);
    if (ec && ec != http::error::need_more) return s.refuse(ec);
    if (s.parser->is_header_done() && !s.said_head) {
      s.said_head = true;
      s.parser->eager(true);
      s.parser->body_limit(uint64_t(s.limits.body_bytes));
      return s.check_head();
    }
    if (ec == http::error::need_more && !s.parser->is_done()) return Result::need_more;
  }
  return Result::complete;
}

HttpParser::Result HttpParser::State::refuse(const ErrorCode& ec) {
  if (ec == http::error::body_limit) return refuse(413, fmt::format("the body is larger than {} bytes, the limit of this server", limits.body_bytes));
  if (ec == http::error::header_limit || ec == http::error::buffer_overflow)
    return refuse(431, fmt::format("the headers are larger than {} bytes or more than {}, the limits of this server", limits.header_bytes, kMaxHeaders));
  if (ec == http::error::bad_version) return refuse(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
  return refuse(400, fmt::format("this is not an HTTP request: {}", ec.message()));
}

HttpParser::Result HttpParser::State::check_head() {
  HttpRequest& request = parser->request;
  std::string_view target = parser->target;
  // The absolute form, "http://host/path", is what a proxy sends; what counts is the path.
  for (const std::string_view scheme : {std::string_view("http://"), std::string_view("https://")})
    if (target.size() > scheme.size() && equal_ignoring_case(target.substr(0, scheme.size()), scheme)) {
      const size_t slash = target.find('/', scheme.size());
      target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
    }
  if (target != "*" && !target.starts_with('/')) return refuse(400, "the target of the request must be a path that begins with /");
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  const auto path = percent_decode(target.substr(0, mark));
  if (!path) return refuse(400, "the path has a % that is not followed by two hexadecimal digits");
  if (path->find('\0') != std::string::npos) return refuse(400, "the path holds a zero byte");
  request.path = *path;
  if (mark != std::string_view::npos) request.query = parse_query(target.substr(mark + 1));
  if (parser->version == 11 && !parser->has_host) return refuse(400, "an HTTP/1.1 request needs a Host header");
  for (const auto& [name, value] : request.headers)
    if (name == "transfer-encoding" && !parser->chunked()) return refuse(501, fmt::format("Transfer-Encoding: {} is not known here; use chunked or a Content-Length", value));
  if (const auto length = parser->content_length(); length && *length > uint64_t(limits.body_bytes))
    return refuse(413, fmt::format("the body has {} bytes, more than the {} this server takes", *length, limits.body_bytes));
  return Result::head;
}

bool HttpParser::begun() const { return state_->begun; }
HttpRequest& HttpParser::request() { return state_->parser->request; }
bool HttpParser::keep_alive() const { return state_->parser->keep_alive(); }
bool HttpParser::http_1_0() const { return state_->parser->version < 11; }
bool HttpParser::expects_continue() const { return state_->parser->expects_continue && !state_->parser->is_done(); }
int HttpParser::status() const { return state_->status; }
const std::string& HttpParser::why() const { return state_->why; }

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

std::string_view HttpRequest::query_value(std::string_view name) const {
  for (const auto& [key, value] : query)
    if (key == name) return value;
  return {};
}

}  // namespace ridge
