// Damaged byte streams. Whatever arrives, the parser neither fails nor depends on how the bytes were cut, and a server that was sent all of it still serves.
#include <gtest/gtest.h>

#include <random>

#include "server/http_parser.h"
#include "server/raw_client.h"
#include "server/stub_server.h"

namespace ridge {
namespace {

using Random = std::mt19937_64;

const std::string kSeeds[] = {
    "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /echo?q=%41+b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"prompt\":\"hello\"GET / HTTP/1.0\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\n5;a=b\r\npedia\r\n0\r\nX: y\r\n\r\nGET /x HTTP/1.1\r\nHost: y\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: x\r\nOrigin: http://a\r\nAccess-Control-Request-Method: POST\r\nConnection: keep-alive, close\r\n\r\n",
    "PUT http://host:80/a%20b/../c#f HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nAuthorization: Bearer a\r\nContent-Length: 0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\nFolded: a\r\n b\r\n\tc\r\nEmpty:\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
};
const std::string kPieces[] = {"\r\n", "\r\n\r\n", "\n", "\r", ":", " ", "%", "%0", "\0", "chunked", "Transfer-Encoding: chunked\r\n", "Content-Length: 5\r\n", "Content-Length: 99999999999999999999\r\n",
                               "ffffffffffffffff\r\n", "0\r\n\r\n", "HTTP/1.1", "HTTP/2.0", "\xff\xfe", "GET ", std::string(300, 'A'), ";", "\t", "Host:", "-1"};

std::string damaged(Random& random) {
  std::string text = kSeeds[random() % std::size(kSeeds)];
  if (random() % 3 == 0) text += kSeeds[random() % std::size(kSeeds)];
  for (int n = int(random() % 8); n > 0; --n) {
    const size_t at = random() % (text.size() + 1);
    switch (random() % 6) {
      case 0: text.insert(at, kPieces[random() % std::size(kPieces)]); break;
      case 1: text.erase(at, random() % 12); break;
      case 2: if (at < text.size()) text[at] = char(random()); break;
      case 3: text.insert(at, text.substr(random() % text.size(), random() % 40)); break;
      case 4: text.resize(at); break;
      case 5: if (at < text.size()) text[at] = char(text[at] ^ (1 << random() % 8)); break;
    }
    if (text.empty()) text = "\r";
  }
  return text;
}

// What a connection would make of the bytes, given in pieces that `next_cut` chooses.
template <class Cut>
std::vector<std::string> requests_of(const std::string& text, Cut next_cut) {
  HttpParser parser({.header_bytes = 2048, .body_bytes = 4096});
  std::vector<std::string> seen;
  std::string waiting;
  for (size_t at = 0; at < text.size();) {
    const size_t n = std::min(text.size() - at, next_cut());
    waiting += text.substr(at, n);
    at += n;
    for (bool more = true; more;) {
      size_t taken = 0;
      const auto result = parser.put(waiting, &taken);
      EXPECT_LE(taken, waiting.size());
      waiting.erase(0, taken);
      if (result == HttpParser::Result::refused) {
        seen.push_back("refused " + std::to_string(parser.status()));
        return seen;
      }
      if (result == HttpParser::Result::complete) {
        const HttpRequest& r = parser.request();
        seen.push_back(r.method + " " + r.path + " " + std::to_string(r.headers.size()) + " " + r.body + (parser.keep_alive() ? " stays" : " closes"));
        parser.reset();
      }
      more = result == HttpParser::Result::head || (result == HttpParser::Result::complete && !waiting.empty());
    }
  }
  return seen;
}

TEST(HttpFuzz, DamagedStreamsMeanTheSameHoweverTheyAreCut) {
  Random random(11);
  int n_complete = 0, n_refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string text = damaged(random) + "\r\n\r\n";        // so that a head which is wrong is also whole: how soon it is refused may depend on the cuts
    const auto whole = requests_of(text, [&] { return text.size(); });
    const auto cut = requests_of(text, [&] { return size_t(1 + random() % 20); });
    ASSERT_EQ(whole, cut) << i << ": " << text;
    for (const std::string& one : whole) (one.starts_with("refused") ? n_refused : n_complete)++;
  }
  EXPECT_GT(n_complete, 2000);
  EXPECT_GT(n_refused, 2000);
}

TEST(HttpFuzz, BytesWithoutAnyFormAreRefused) {
  Random random(12);
  for (int i = 0; i < 2000; ++i) {
    std::string text(1 + random() % 3000, '\0');
    for (char& c : text) c = char(random());
    const auto whole = requests_of(text, [&] { return text.size(); });
    for (const std::string& one : whole) EXPECT_TRUE(one.starts_with("refused")) << one;
  }
}

TEST(HttpFuzz, AServerThatWasSentAllOfItStillServes) {
  StubServer s({.max_header_bytes = 2048, .max_body_bytes = 4096, .header_timeout = std::chrono::seconds(1), .body_timeout = std::chrono::seconds(1)});
  Random random(13);
  for (int i = 0; i < 600; ++i) {
    RawClient c(s.port());
    ASSERT_TRUE(c.connected());
    c.send(damaged(random));
    if (i % 3 == 0) c.more(2);
  }
  RawClient c(s.port());
  EXPECT_EQ(c.post("/echo", "still here")->body, "still here");
  EXPECT_TRUE(StubServer::soon([&] { return s.server->n_connections() <= 1; }));
}

}  // namespace
}  // namespace ridge
