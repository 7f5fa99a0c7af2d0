// HTTP over real sockets: what clients send, cut, delay, repeat or leave unfinished.
#include <gtest/gtest.h>

#include "server/raw_client.h"
#include "server/stub_server.h"

namespace ridge {
namespace {

using namespace std::chrono_literals;

TEST(Http, AConnectionServesManyRequests) {
  StubServer s;
  RawClient c(s.port());
  for (int i = 0; i < 5; ++i) {
    const auto a = c.post("/echo?q=a%20b+c", "body " + std::to_string(i));
    ASSERT_TRUE(a);
    EXPECT_EQ(a->status, 200);
    EXPECT_EQ(a->body, "body " + std::to_string(i));
    EXPECT_EQ(a->headers.at("x-query"), "a b c");
  }
  EXPECT_EQ(s.server->n_connections(), 1);
}

TEST(Http, PipelinedRequestsAreAnsweredInOrder) {
  StubServer s;
  RawClient c(s.port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n" + std::to_string(10 + i);
  all += "GET /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /echo?q=last HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_TRUE(c.send(all));
  for (int i = 0; i < 50; ++i) {
    const auto a = c.answer();
    ASSERT_TRUE(a);
    EXPECT_EQ(a->body, std::to_string(10 + i));
  }
  EXPECT_FALSE(c.answer()->chunks.empty());
  EXPECT_EQ(c.answer()->headers.at("x-query"), "last");
}

TEST(Http, AnyCuttingOfTheBytesGivesTheSameRequest) {
  StubServer s;
  const std::string text = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: t\r\n\r\n";
  for (size_t cut = 1; cut < text.size(); ++cut) {
    RawClient c(s.port());
    ASSERT_TRUE(c.send(text.substr(0, cut)));
    std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(c.send(text.substr(cut)));
    const auto a = c.answer();
    ASSERT_TRUE(a) << cut;
    EXPECT_EQ(a->body, "hello world") << cut;
  }
  RawClient c(s.port());
  for (const char byte : text) ASSERT_TRUE(c.send({&byte, 1}));
  EXPECT_EQ(c.answer()->body, "hello world");
}

TEST(Http, AStreamComesInPiecesAndTheConnectionGoesOn) {
  StubServer s;
  RawClient c(s.port());
  for (int round = 0; round < 3; ++round) {
    const auto a = c.get("/stream?us=2000");
    ASSERT_TRUE(a);
    EXPECT_EQ(a->headers.at("content-type"), "text/event-stream");
    EXPECT_GT(a->chunks.size(), 3u);
    std::string expected;
    for (int i = 0; i < 10; ++i) expected += "data: " + std::to_string(i) + "\n\n";
    EXPECT_EQ(a->body, expected);
  }
}

TEST(Http, OldClientsGetAStreamWithoutChunks) {
  StubServer s;
  RawClient c(s.port());
  ASSERT_TRUE(c.send("GET /stream?n=2 HTTP/1.0\r\n\r\n"));
  const auto a = c.head();
  ASSERT_TRUE(a);
  EXPECT_FALSE(a->headers.contains("transfer-encoding"));
  EXPECT_EQ(a->headers.at("connection"), "close");
  ASSERT_TRUE(c.closed_within(5000));
  EXPECT_EQ(c.unread(), "data: 0\n\ndata: 1\n\n");
}

TEST(Http, AHeadRequestHasNoBody) {
  StubServer s;
  RawClient c(s.port());
  ASSERT_TRUE(c.send("HEAD /large HTTP/1.1\r\nHost: x\r\n\r\nGET /echo?q=next HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto a = c.answer(10000, true);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->headers.at("content-length"), std::to_string(20 << 20));
  EXPECT_EQ(c.answer()->headers.at("x-query"), "next");
}

TEST(Http, ALargeAnswerArrivesWhole) {
  StubServer s;
  RawClient c(s.port());
  const auto a = c.get("/large");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->body.size(), size_t{20} << 20);
}

TEST(Http, RequestsThatAreNoneAreRefusedAndTheConnectionCloses) {
  StubServer s;
  const std::pair<const char*, int> cases[] = {
      {"nonsense\r\n\r\n", 400},
      {"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 505},
      {"GET http HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /a%00b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost x\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
  };
  for (const auto& [text, status] : cases) {
    RawClient c(s.port());
    ASSERT_TRUE(c.send(text));
    const auto a = c.answer();
    ASSERT_TRUE(a) << text;
    EXPECT_EQ(a->status, status) << text << a->body;
    EXPECT_NE(a->body.find("\"error\""), std::string::npos);
    EXPECT_TRUE(c.closed_within(5000)) << text;
  }
  EXPECT_EQ(s.n_handled, 0);
}

TEST(Http, ABodyOverTheLimitIsRefusedWithoutBeingRead) {
  StubServer s({.max_body_bytes = 1 << 20});
  RawClient announced(s.port());
  ASSERT_TRUE(announced.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n"));
  EXPECT_EQ(announced.answer()->status, 413);
  RawClient chunked(s.port());
  ASSERT_TRUE(chunked.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
  const std::string piece = "10000\r\n" + std::string(65536, 'z') + "\r\n";
  int n_sent = 0;
  while (n_sent < 1600 && chunked.send(piece)) ++n_sent;
  EXPECT_EQ(chunked.answer()->status, 413);
  EXPECT_LT(n_sent, 1600);
  RawClient polite(s.port());
  ASSERT_TRUE(polite.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 104857600\r\n\r\n"));
  EXPECT_EQ(polite.answer()->status, 413);
  EXPECT_EQ(s.n_handled, 0);
}

TEST(Http, BodiesOfAllConnectionsTogetherHaveALimit) {
  StubServer s({.max_body_bytes = 1 << 20, .max_bodies_bytes = 1 << 20});
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 700000\r\n\r\n", body(700000, 'b');
  RawClient first(s.port()), second(s.port());
  first.send(head + body.substr(1));
  std::this_thread::sleep_for(100ms);
  second.send(head + body);
  EXPECT_EQ(second.answer()->status, 503);
  first.send("b");
  EXPECT_EQ(first.answer()->body, body);
  // What is answered counts no more, once its handler has returned, which may be a moment after the answer.
  const auto taken = [&] {
    RawClient client(s.port());
    const auto answer = client.post("/echo", body);
    return answer && answer->body.size() == body.size();
  };
  const auto soon = [&] {
    for (int i = 0; i < 50; ++i, std::this_thread::sleep_for(20ms))
      if (taken()) return true;
    return false;
  };
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(soon());
  RawClient third(s.port());
  third.send(head + "half");
  third.close();
  EXPECT_TRUE(soon());
}

TEST(Http, AClientThatAsksFirstIsToldToGoOn) {
  StubServer s;
  RawClient c(s.port());
  ASSERT_TRUE(c.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
  EXPECT_EQ(c.answer()->status, 100);
  ASSERT_TRUE(c.send("hello"));
  EXPECT_EQ(c.answer()->body, "hello");
}

TEST(Http, HeadersOverTheLimitAreRefused) {
  StubServer s;
  RawClient large(s.port());
  large.send("GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(100 << 10, 'a') + "\r\n\r\n");
  EXPECT_EQ(large.answer()->status, 431);
  RawClient many(s.port());
  std::string text = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 300; ++i) text += "X-" + std::to_string(i) + ": 1\r\n";
  many.send(text + "\r\n");
  EXPECT_EQ(many.answer()->status, 431);
}

TEST(Http, HalfSentRequestsEndAtTheirTimeLimitAndOthersAreServed) {
  StubServer s({.header_timeout = 1s, .body_timeout = 1s, .idle_timeout = 1s});
  RawClient head(s.port()), body(s.port()), idle(s.port());
  head.send("GET /echo HTTP/1.1\r\nHos");
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf");
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    RawClient other(s.port());
    EXPECT_EQ(other.post("/echo", "x")->body, "x");
  }
  EXPECT_EQ(head.answer()->status, 408);
  EXPECT_EQ(body.answer()->status, 408);
  EXPECT_TRUE(idle.closed_within(3000));
  EXPECT_TRUE(idle.unread().empty());
  EXPECT_GT(std::chrono::steady_clock::now() - start, 800ms);
  EXPECT_TRUE(StubServer::soon([&] { return s.server->n_connections() == 0; }));
}

TEST(Http, AnUnreliableTrickleOfHeadersStillEnds) {
  StubServer s({.header_timeout = 1s});
  RawClient c(s.port());
  c.send("GET /echo HTTP/1.1\r\n");
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < 5s && !c.closed_within(100)) c.send("X: 1\r\n");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 4s);
}

TEST(Http, AClientThatLeavesIsNoticedWhileItsAnswerIsMade) {
  StubServer s;
  for (const char* path : {"/hold", "/silent"}) {
    const int before = s.n_gone;
    RawClient c(s.port());
    c.send(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    ASSERT_TRUE(StubServer::soon([&] { return s.n_handled > before; }));
    const auto start = std::chrono::steady_clock::now();
    c.close();
    ASSERT_TRUE(StubServer::soon([&] { return s.n_gone > before; }));
    EXPECT_LT(std::chrono::steady_clock::now() - start, 200ms);
  }
  EXPECT_TRUE(StubServer::soon([&] { return s.log().size() == 2; }));
  EXPECT_NE(s.log()[0].find("status=499"), std::string::npos) << s.log()[0];
}

TEST(Http, PostedWorkRunsThoughTheClientIsGone) {
  StubServer s;
  RawClient c(s.port());
  c.send("GET /stream?n=50&us=2000 HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(StubServer::soon([&] { return s.n_posted > 3; }));
  c.close();
  EXPECT_TRUE(StubServer::soon([&] { return s.n_posted == 50; }));
  EXPECT_EQ(s.n_gone, 1);
}

TEST(Http, ASlowReaderIsDroppedAtItsQueueLimit) {
  StubServer s({.max_queued_bytes = 1 << 20});
  RawClient c(s.port(), 4096);
  c.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(StubServer::soon([&] { return s.n_gone == 1; }));
}

TEST(Http, AReaderThatStopsIsDroppedAtTheWriteTimeLimit) {
  StubServer s({.write_timeout = 1s});
  RawClient c(s.port(), 4096);
  c.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(StubServer::soon([&] { return s.n_handled == 1 && s.server->n_connections() == 0; }));
  EXPECT_GT(std::chrono::steady_clock::now() - start, 800ms);
}

TEST(Http, CommentsKeepASilentStreamAlive) {
  StubServer s({.comment_interval = 50ms});
  RawClient c(s.port());
  c.send("GET /silent HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(c.head());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(c.chunk(), ": still here\n\n");
  s.release = true;
  std::string piece;
  while ((piece = c.chunk().value_or("")) == ": still here\n\n") {}
  EXPECT_EQ(piece, "data: late\n\n");
  EXPECT_EQ(c.chunk(), "");
  std::this_thread::sleep_for(120ms);
  EXPECT_FALSE(c.more(1));                             // a stream that ended says nothing more
}

TEST(Http, WhatAHandlerThrowsBecomesAnAnswer) {
  StubServer s;
  RawClient c(s.port());
  const auto broken = c.get("/throw"), fault = c.get("/fault"), forgotten = c.get("/forget");
  EXPECT_EQ(broken->status, 500);
  EXPECT_EQ(fault->status, 400);
  EXPECT_NE(fault->body.find("temperature = -1"), std::string::npos);
  EXPECT_EQ(forgotten->status, 500);
  EXPECT_EQ(c.get("/echo")->status, 200);
  c.send("GET /abandon HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(c.closed_within(5000));                  // cut off, so that half an answer is not taken for a whole one
}

TEST(Http, KeysAreAskedForEverywhereButOnOpenPaths) {
  StubServer s({.api_keys = {"secret-1", "secret-2"}, .open_paths = {"/echo"}});
  RawClient c(s.port());
  EXPECT_EQ(c.get("/echo")->status, 200);
  const auto refused = c.get("/note");
  EXPECT_EQ(refused->status, 401);
  EXPECT_TRUE(refused->headers.contains("www-authenticate"));
  const auto status = [&](const std::string& header) { return RawClient(s.port()).get("/note", header)->status; };
  EXPECT_EQ(status("Authorization: Bearer secret-1\r\n"), 200);
  EXPECT_EQ(status("authorization: bearer secret-2\r\n"), 200);
  EXPECT_EQ(status("x-api-key: secret-2\r\n"), 200);
  EXPECT_EQ(status("Authorization: Bearer secret\r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer secret-1x\r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer \r\n"), 401);
  EXPECT_EQ(status("Authorization: Basic secret-1\r\n"), 401);
  RawClient large(s.port());                           // refused before the body
  large.send("POST /note HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(large.answer()->status, 401);
}

TEST(Http, PagesOfAllowedOriginsMayAsk) {
  StubServer any({.api_keys = {"k"}, .cors_origin = "*"});
  const std::string ask = "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization, content-type\r\n";
  RawClient c(any.port());
  c.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + ask + "\r\n");
  const auto preflight = c.answer();
  EXPECT_EQ(preflight->status, 204);
  EXPECT_EQ(preflight->headers.at("access-control-allow-origin"), "*");
  EXPECT_EQ(preflight->headers.at("access-control-allow-headers"), "authorization, content-type");
  EXPECT_EQ(c.get("/echo", "Origin: https://a.example\r\n")->headers.at("access-control-allow-origin"), "*");

  StubServer some({.cors_origin = "https://a.example, https://b.example"});
  RawClient d(some.port());
  EXPECT_EQ(d.get("/echo", "Origin: https://b.example\r\n")->headers.at("access-control-allow-origin"), "https://b.example");
  EXPECT_FALSE(d.get("/echo", "Origin: https://c.example\r\n")->headers.contains("access-control-allow-origin"));
  StubServer none;
  EXPECT_FALSE(RawClient(none.port()).get("/echo", "Origin: https://b.example\r\n")->headers.contains("access-control-allow-origin"));
}

TEST(Http, RequestsAreKnownByTheirIdsInTheLog) {
  StubServer s;
  RawClient c(s.port());
  EXPECT_EQ(c.get("/echo", "X-Request-Id: mine-1\r\n")->headers.at("x-request-id"), "mine-1");
  const std::string made = c.get("/echo", "X-Request-Id: \"; evil\r\n")->headers.at("x-request-id");
  EXPECT_TRUE(made.starts_with("req_")) << made;
  c.get("/note", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n");
  c.get("/a%0Astatus=200");
  ASSERT_TRUE(StubServer::soon([&] { return s.log().size() == 4; }));
  const auto lines = s.log();
  EXPECT_NE(lines[0].find("request=mine-1"), std::string::npos);
  EXPECT_NE(lines[2].find("trace=0af7651916cd43dd8448eb211c80319c"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("prompt=12 tokens=34"), std::string::npos) << lines[2];
  EXPECT_EQ(lines[3].find('\n'), std::string::npos);

  StubServer json({.log_json = true});
  RawClient(json.port()).get("/note");
  ASSERT_TRUE(StubServer::soon([&] { return json.log().size() == 1; }));
  EXPECT_NE(json.log()[0].find("\"tokens\":34"), std::string::npos) << json.log()[0];
}

TEST(Http, MoreConnectionsThanAllowedAreToldSo) {
  StubServer s({.max_connections = 3});
  std::vector<RawClient> held;
  for (int i = 0; i < 3; ++i) {
    held.emplace_back(s.port());
    EXPECT_EQ(held.back().get("/echo")->status, 200);
  }
  RawClient extra(s.port());
  EXPECT_EQ(extra.answer()->status, 503);
  held.clear();
  ASSERT_TRUE(StubServer::soon([&] { return s.server->n_connections() == 0; }));
  EXPECT_EQ(RawClient(s.port()).get("/echo")->status, 200);
}

TEST(Http, StoppingLetsAnswersEnd) {
  StubServer s;
  RawClient busy(s.port()), idle(s.port());
  EXPECT_EQ(idle.get("/echo")->status, 200);
  busy.send("GET /silent HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(busy.head());
  const int port = s.port();
  std::thread stopping([&] { s.server->stop(5s); });
  EXPECT_TRUE(idle.closed_within(2000));
  EXPECT_TRUE(StubServer::soon([&] { return !RawClient(port).connected(); }));
  s.release = true;
  EXPECT_EQ(busy.chunk(), "data: late\n\n");
  EXPECT_EQ(busy.chunk(), "");
  EXPECT_TRUE(busy.closed_within(3000));
  busy.close();
  stopping.join();
  EXPECT_EQ(s.n_gone, 0);
}

TEST(Http, StoppingEndsWhatTakesTooLong) {
  StubServer s;
  RawClient busy(s.port());
  busy.send("GET /silent HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(busy.head());
  const auto start = std::chrono::steady_clock::now();
  s.server->stop(100ms);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  EXPECT_EQ(s.n_gone, 1);
  EXPECT_TRUE(busy.closed_within(1000));
}

TEST(Http, ATakenPortIsNamed) {
  StubServer s;
  try {
    HttpServer second({.port = s.port()}, [](const HttpRequest&, std::shared_ptr<HttpReply>) {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(std::to_string(s.port()) + " is taken"), std::string::npos) << e.what();
  }
  EXPECT_THROW(HttpServer({.host = "no.such.host.invalid", .port = 0}, {}), Error);
  EXPECT_THROW(HttpServer({.port = 70000}, {}), Error);
  EXPECT_THROW(HttpServer({.port = 0, .tls_certificate = "/no/such/file.pem", .tls_key = "/no/such/key.pem"}, {}), Error);
}

}  // namespace
}  // namespace ridge
