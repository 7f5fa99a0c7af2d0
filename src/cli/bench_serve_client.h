// The client of `ridge bench serve`: any number of streams at once on one thread (Asio's coroutines), plain or TLS, connections kept alive between requests.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/bench_serve_load.h"
#include "cli/bench_serve_report.h"

namespace ridge::load {

struct ClientOptions {
  std::string base_url, api_key;
  std::vector<std::pair<std::string, std::string>> headers;
  double timeout_s = 600;                              // without a byte
  bool verify_tls = true;
};

// What a stream of server-sent events says, without parsing every event as JSON: at thousands of tokens a second the client must not take the machine from the server.
class AnswerStream {
 public:
  explicit AnswerStream(bool keep_text) : keep_text_(keep_text) {}
  void feed(std::string_view bytes, double now);       // any pieces of the body, with the time of their arrival
  bool done() const { return done_; }
  Outcome outcome;                                     // first, gaps, counts and error are filled in; `end` is the time of the last piece of text
  std::string text;

 private:
  void event(std::string_view data, double now);
  std::string rest_;
  bool keep_text_, done_ = false;
  double last_ = 0;
  int n_pieces_ = 0;
};

// Runs the conversations: each at its time (open loop) or, with `closed`, as soon as one of `concurrency` places is free. In an open loop `concurrency` bounds how many run at
// once; what waits for a place is late, and its latency counts from when it was due. `progress` is told how many turns have ended.
std::vector<Outcome> run_load(const ClientOptions& client, const RequestFlags& request, const std::vector<Conversation>& all, bool closed, int concurrency, double& seconds,
                              const std::function<void(size_t n_ended)>& progress);

// GET of a JSON document, such as /v1/models. Throws Error when there is none.
Json get_json(const ClientOptions& client, const std::string& path);

}  // namespace ridge::load
