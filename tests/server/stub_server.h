// A server whose handler does what the path says, for tests of HTTP itself.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/http.h"

namespace ridge {

class StubServer {
 public:
  explicit StubServer(HttpOptions options = {}) {
    options.port = 0;
    options.log_sink = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    server = std::make_unique<HttpServer>(std::move(options), [this](const HttpRequest& request, std::shared_ptr<HttpReply> reply) { handle(request, std::move(reply)); });
    server->start();
  }
  ~StubServer() {
    server.reset();
    for (std::thread& thread : threads_) thread.join();
  }
  int port() const { return server->port(); }
  std::vector<std::string> log() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  // Waits until something is so, for at most five seconds.
  template <class F>
  static bool soon(F is_so) {
    for (int i = 0; i < 1000; ++i) {
      if (is_so()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return is_so();
  }

  std::unique_ptr<HttpServer> server;
  std::atomic<int> n_gone{0}, n_handled{0}, n_posted{0};
  std::atomic<bool> release{false};

 private:
  void handle(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    n_handled++;
    if (request.path == "/echo") return reply->send(200, "text/plain", request.body, {{"X-Id", request.id}, {"X-Query", std::string(request.query_value("q"))}});
    if (request.path == "/throw") throw std::runtime_error("broken");
    if (request.path == "/fault") fail("temperature = -1: must be 0 or more");
    if (request.path == "/forget") return;
    if (request.path == "/large") return reply->send(200, "text/plain", std::string(20 << 20, 'x'));
    if (request.path == "/note") {
      reply->note("prompt=12 tokens=34");
      return reply->send(200, "text/plain", "ok");
    }
    if (request.path == "/abandon") {                  // begun, then forgotten
      reply->begin(200, "text/plain");
      return reply->write("half");
    }
    reply->on_gone([this] { n_gone++; });
    if (request.path == "/hold" || request.path == "/silent") {       // answers when it is let go
      if (request.path == "/silent") reply->begin(200, "text/event-stream", ": still here\n\n");
      return on_thread([this, reply, path = request.path] {
        while (!release && !reply->gone()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (path == "/silent") reply->write("data: late\n\n"), reply->end();
        else reply->send(200, "text/plain", "late");
      });
    }
    if (request.path == "/flood") {                    // more than any client takes
      reply->begin(200, "text/event-stream");
      return on_thread([this, reply] {
        while (!release && !reply->gone()) {
          reply->write(std::string(64 << 10, 'y'));
          std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
      });
    }
    if (request.path == "/stream") {                   // ten pieces made on the connection's thread, as events of an engine are
      const int n = request.query_value("n").empty() ? 10 : std::atoi(std::string(request.query_value("n")).c_str());
      const int pause_us = std::atoi(std::string(request.query_value("us")).c_str());
      auto started = std::make_shared<bool>(false);
      on_thread([this, reply, n, pause_us, started] {
        for (int i = 0; i < n; ++i) {
          reply->post([this, reply, i, started] {
            n_posted++;
            reply->write("data: " + std::to_string(i) + (*started ? "\n\n" : " too early\n\n"));
          });
          if (pause_us) std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
        }
        reply->post([reply] { reply->end(); });
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(2));      // work that was posted meanwhile waits for the handler
      reply->begin(200, "text/event-stream");
      *started = true;
      return;
    }
    reply->send(404, "text/plain", "nothing here");
  }
  template <class F>
  void on_thread(F work) {
    const std::lock_guard lock(mutex_);
    threads_.emplace_back(std::move(work));
  }
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::vector<std::thread> threads_;
};

}  // namespace ridge
