// Many connections at once: idle ones are closed at their limit while others are served, and streams of a crowd all end whole.
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <unordered_map>

#include "server/raw_client.h"
#include "server/stub_server.h"

namespace ridge {
namespace {

using namespace std::chrono_literals;

// Both ends of every connection are in this process.
int affordable(int wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_max == RLIM_INFINITY ? wanted : std::min<int>(wanted, int(limit.rlim_max) / 2 - 200);
}

TEST(HttpCrowd, TenThousandIdleConnectionsEndAtTheirLimitAndOthersAreServed) {
  const int n = affordable(10000);
  ASSERT_GT(n, 100);
  StubServer s({.max_connections = 30000, .idle_timeout = 4s});
  std::vector<RawClient> idle;
  idle.reserve(size_t(n));
  for (int i = 0; i < n; ++i) {
    idle.emplace_back(s.port());
    ASSERT_TRUE(idle.back().connected()) << i;
  }
  EXPECT_TRUE(StubServer::soon([&] { return s.server->n_connections() == n; })) << s.server->n_connections() << " of " << n;
  for (int i = 0; i < 200; ++i) {
    const auto start = std::chrono::steady_clock::now();
    RawClient other(s.port());
    ASSERT_EQ(other.post("/echo", "x")->body, "x");
    EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  }
  for (int i = 0; i < 3 && s.server->n_connections() > 0; ++i) StubServer::soon([&] { return s.server->n_connections() == 0; });
  EXPECT_EQ(s.server->n_connections(), 0);
  for (RawClient& c : idle) {
    ASSERT_TRUE(c.closed_within(1000));
    ASSERT_TRUE(c.unread().empty());
  }
}

TEST(HttpCrowd, TwoThousandStreamsAllEndWhole) {
  const int n = affordable(2000);
  ASSERT_GT(n, 100);
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpReply>> replies;
  HttpServer server({.port = 0, .access_log = false}, [&](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
    reply->begin(200, "text/event-stream", ": wait\n\n");
    const std::lock_guard lock(mutex);
    replies.push_back(std::move(reply));
  });
  server.start();
  std::vector<RawClient> clients;
  clients.reserve(size_t(n));
  for (int i = 0; i < n; ++i) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"));
  }
  ASSERT_TRUE(StubServer::soon([&] { const std::lock_guard lock(mutex); return int(replies.size()) == n; }));
  // As an engine does it: every step gives each answer one piece.
  constexpr int kPieces = 50;
  std::thread engine([&] {
    for (int step = 0; step < kPieces; ++step)
      for (const auto& reply : replies) reply->post([&reply, step] { reply->write("data: " + std::to_string(step) + "\n\n"); });
    for (const auto& reply : replies) reply->post([&reply] { reply->end(); });
  });
  std::string expected;
  for (int i = 0; i < kPieces; ++i) expected += "data: " + std::to_string(i) + "\n\n";
  for (RawClient& c : clients) {
    const auto a = c.answer();
    ASSERT_TRUE(a);
    ASSERT_EQ(a->body, expected);
  }
  engine.join();
}

}  // namespace
}  // namespace ridge
