// Bytes of a connection into requests, one after the other, however they were cut: Beast's parser with the limits and the refusals of a server.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/http.h"

namespace ridge {

class HttpParser {
 public:
  struct Limits {
    int header_bytes = 64 << 10;
    int64_t body_bytes = 32 << 20;
  };
  explicit HttpParser(Limits limits);
  ~HttpParser();

  enum class Result { need_more, head, complete, refused };
  // Takes what it can from the front of `bytes` (saying how much). `head`: the headers are whole, and nothing of the body was taken yet: call again to go on.
  // What is left after `complete` belongs to the next request, for which reset() makes room. After `refused` the connection has lost its place.
  Result put(std::string_view bytes, size_t* n_taken);
  void reset();
  bool begun() const;                        // some bytes of a request have arrived

  HttpRequest& request();                    // from `head` on, all but the body
  bool keep_alive() const;
  bool http_1_0() const;
  bool expects_continue() const;             // the client waits for 100 before it sends the body
  int status() const;                        // of a refusal: 400, 413, 431, 501, 505
  const std::string& why() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ridge
