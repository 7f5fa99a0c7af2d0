// A client that sends exactly the bytes it is told to, over a real socket, and reads answers as HTTP/1.1 writes them.
#pragma once
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge {

struct RawAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;          // names in lower case
  std::string body;                                    // without the chunks' framing
  std::vector<std::string> chunks;
};

class RawClient {
 public:
  explicit RawClient(int port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) close();
  }
  ~RawClient() { close(); }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)), input_(std::move(other.input_)) {}
  RawClient(const RawClient&) = delete;

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  bool connected() const { return fd_ >= 0; }
  // False when the other side does not take it all.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(size_t(n));
    }
    return true;
  }
  // More bytes; false at the end of the stream, on an error, or when none come in time.
  bool more(int ms = 10000) {
    pollfd p{fd_, POLLIN, 0};
    if (::poll(&p, 1, ms) <= 0) return false;
    char buffer[65536];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) {
      closed_ = true;
      return false;
    }
    input_.append(buffer, size_t(n));
    return true;
  }
  // Whether the server closes within the time; what it sends before is kept.
  bool closed_within(int ms) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    while (!closed_) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
      if (left <= 0) return false;
      more(int(left));
    }
    return true;
  }
  std::optional<std::string> line(int ms = 10000) {
    size_t end;
    while ((end = input_.find("\r\n")) == std::string::npos)
      if (!more(ms)) return std::nullopt;
    std::string out = input_.substr(0, end);
    input_.erase(0, end + 2);
    return out;
  }
  std::optional<std::string> bytes(size_t n, int ms = 10000) {
    while (input_.size() < n)
      if (!more(ms)) return std::nullopt;
    std::string out = input_.substr(0, n);
    input_.erase(0, n);
    return out;
  }
  std::optional<RawAnswer> head(int ms = 10000) {
    const auto first = line(ms);
    if (!first || !first->starts_with("HTTP/1.1 ")) return std::nullopt;
    RawAnswer answer{.status = std::atoi(first->c_str() + 9)};
    for (;;) {
      const auto next = line(ms);
      if (!next) return std::nullopt;
      if (next->empty()) return answer;
      const size_t colon = next->find(": ");
      if (colon == std::string::npos) return std::nullopt;
      std::string name = next->substr(0, colon);
      for (char& c : name) c = char(std::tolower(static_cast<unsigned char>(c)));
      answer.headers[name] = next->substr(colon + 2);
    }
  }
  std::optional<std::string> chunk(int ms = 10000) {           // an empty one ends the body
    const auto size = line(ms);
    if (!size) return std::nullopt;
    auto piece = bytes(std::strtoul(size->c_str(), nullptr, 16), ms);
    if (!piece || !line(ms)) return std::nullopt;
    return piece;
  }
  std::optional<RawAnswer> answer(int ms = 10000, bool without_body = false) {
    auto a = head(ms);
    if (!a || without_body || a->status == 204 || a->status == 304 || a->status == 100) return a;
    if (a->headers.contains("transfer-encoding")) {
      for (;;) {
        const auto piece = chunk(ms);
        if (!piece) return std::nullopt;
        if (piece->empty()) return a;
        a->chunks.push_back(*piece);
        a->body += *piece;
      }
    }
    const auto body = bytes(a->headers.contains("content-length") ? std::strtoul(a->headers["content-length"].c_str(), nullptr, 10) : 0, ms);
    if (!body) return std::nullopt;
    a->body = *body;
    return a;
  }
  std::optional<RawAnswer> get(const std::string& path, const std::string& headers = "") {
    if (!send("GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n")) return std::nullopt;
    return answer();
  }
  std::optional<RawAnswer> post(const std::string& path, const std::string& body, const std::string& headers = "") {
    if (!send("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body)) return std::nullopt;
    return answer();
  }
  const std::string& unread() const { return input_; }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  bool closed_ = false;
  std::string input_;
};

}  // namespace ridge
