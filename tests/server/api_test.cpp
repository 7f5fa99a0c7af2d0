#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "server/api/fields.h"
#include "server/api/shapes.h"
#include "server/api_service.h"

namespace ridge {
namespace {

Json chat(const std::string& text, Json more = Json::object()) {
  Json body = {{"messages", {{{"role", "user"}, {"content", text}}}}, {"max_tokens", 12}, {"temperature", 0}};
  body.update(more);
  return body;
}

std::string streamed_text(const std::string& body) {
  std::string text;
  for (size_t at = 0; (at = body.find("data: {", at)) != std::string::npos; ++at) {
    const Json chunk = parse_json(body.substr(at + 6, body.find("\n\n", at) - at - 6), "chunk");
    for (const Json& choice : chunk["choices"])
      if (choice["delta"].contains("content")) text += choice["delta"]["content"].get<std::string>();
  }
  return text;
}

TEST(Fields, SayTheFieldTheValueAndTheRange) {
  const Json json = {{"a", -1}, {"b", "x"}, {"c", 16.0}, {"d", 1.5}, {"e", nullptr}, {"f", 18446744073709551615ull}};
  const Fields fields(json, "options");
  const auto message = [&](auto read) -> std::string {
    try {
      read();
    } catch (const ApiError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { fields.number("a", 0, 2); }), "options.a = -1: must lie between 0 and 2");
  EXPECT_EQ(message([&] { fields.integer("b", 0, 9); }), "options.b = \"x\": must be a whole number from 0 to 9");
  EXPECT_EQ(message([&] { fields.integer("d", 0, 9); }), "options.d = 1.5: must be a whole number from 0 to 9");
  EXPECT_NE(message([&] { fields.integer("f", 0, 9); }), "");
  EXPECT_EQ(fields.integer("c", 0, 99), 16);
  EXPECT_EQ(fields.text("e"), std::nullopt);
  EXPECT_LT(shown(Json(std::string(10000, 'x'))).size(), 100u);
}

TEST(Api, AStreamIsTheWholeAnswerInPieces) {
  ApiService& api = tiny_service();
  const Json whole = api.json("/v1/chat/completions", chat("Hello"));
  const auto reply = api.ask("/v1/chat/completions", chat("Hello", {{"stream", true}}).dump());
  EXPECT_EQ(reply->content_type, "text/event-stream");
  EXPECT_TRUE(reply->body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(streamed_text(reply->body), whole["choices"][0]["message"]["content"].get<std::string>());
}

TEST(Api, AClientThatLeavesFreesItsRequest) {
  ApiService& api = tiny_service();
  const auto reply = api.start("/v1/chat/completions", chat("Hello", {{"stream", true}, {"max_tokens", 900}, {"ignore_eos", true}, {"n", 2}}).dump());
  ASSERT_TRUE(reply->run([&] { return reply->body.size() > 2000; }));
  EXPECT_EQ(api.n_live(), 2u);
  reply->leave();
  api.thread.between_steps([](Engine&) { return 0; });
  EXPECT_EQ(api.n_live(), 0u);
}

TEST(Api, AStopStringFreesItsRequest) {
  ApiService& api = tiny_service();
  const Json whole = api.json("/v1/chat/completions", chat("Tell me a story", {{"max_tokens", 30}}));
  const std::string text = whole["choices"][0]["message"]["content"], stop = text.substr(10, 4);
  const Json cut = api.json("/v1/chat/completions", chat("Tell me a story", {{"max_tokens", 900}, {"stop", stop}}));
  EXPECT_EQ(cut["choices"][0]["message"]["content"], text.substr(0, text.find(stop)));
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "stop");
  api.thread.between_steps([](Engine&) { return 0; });
  EXPECT_EQ(api.n_live(), 0u);
}

TEST(Api, MalformedRequestsLeaveAStreamAsItIs) {
  ApiService& api = tiny_service();
  const Json body = chat("Tell me a story", {{"max_tokens", 120}, {"ignore_eos", true}});
  const std::string alone = api.json("/v1/chat/completions", body)["choices"][0]["message"]["content"];
  Json streaming = body;
  streaming["stream"] = true;
  const auto reply = api.start("/v1/chat/completions", streaming.dump());
  int n = 0;
  const char* bad[] = {"", "{", "\xff\xfe", "[]", "{\"messages\":7}", "{\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]}", "{\"messages\":[{\"role\":\"user\",\"content\":{}}],\"max_tokens\":9}"};
  ASSERT_TRUE(reply->run([&] {
    for (const char* path : {"/v1/chat/completions", "/v1/messages", "/api/chat", "/v1/responses"}) {
      const auto refused = api.start(path, bad[n % std::size(bad)]);
      EXPECT_EQ(refused->status, 400) << refused->body;
      n++;
    }
    return false;
  }));
  EXPECT_GT(n, 100);
  EXPECT_EQ(streamed_text(reply->body), alone);
}

TEST(Api, AFullQueueIs429WithWhenToTryAgain) {
  ApiService api({.max_queue = 2});
  const auto first = api.start("/v1/chat/completions", chat("Hello", {{"max_tokens", 500}, {"ignore_eos", true}, {"n", 2}}).dump());
  for (const auto& [path, shape] : {std::pair{"/v1/chat/completions", "/error/type"}, std::pair{"/v1/messages", "/error/type"}}) {
    const auto refused = api.start(path, chat("Hello").dump());
    EXPECT_EQ(refused->status, 429) << refused->body;
    ASSERT_EQ(refused->headers.size(), 1u);
    EXPECT_EQ(refused->headers[0].first, "Retry-After");
    EXPECT_EQ(parse_json(refused->body, "body").at(Json::json_pointer(shape)), "rate_limit_error");
  }
  // n that does not fit frees what was taken already.
  first->leave();
  while (api.thread.n_live() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto partly = api.start("/v1/chat/completions", chat("Hello", {{"n", 2}, {"max_tokens", 400}, {"ignore_eos", true}}).dump());
  EXPECT_EQ(partly->status, 0);
  EXPECT_EQ(api.start("/v1/completions", R"({"prompt":["a","b","c"],"max_tokens":1})")->status, 429);
  EXPECT_EQ(api.n_live(), 2u);
}

TEST(Api, UntilTheModelIsThereTheAnswerIs503) {
  Routes routes;
  for (const char* path : {"/health", "/v1/models", "/version"}) {
    const auto reply = std::make_shared<KeptReply>();
    routes.handle({.method = "GET", .path = path}, reply);
    EXPECT_EQ(reply->status, 503) << path;
    EXPECT_EQ(parse_json(reply->body, path)["error"]["code"], "loading");
  }
}

TEST(Api, EveryPathHasTheErrorShapeOfItsApi) {
  EXPECT_EQ(Routes::error_body(413, "too large", "/v1/chat/completions"), R"({"error":{"message":"too large","type":"invalid_request_error","param":null,"code":null}})");
  EXPECT_EQ(Routes::error_body(413, "too large", "/v1/messages"), R"({"type":"error","error":{"type":"request_too_large","message":"too large"}})");
  EXPECT_EQ(Routes::error_body(413, "too large", "/api/chat"), R"({"error":"too large"})");
}

TEST(Api, AWrongMethodIsToldTheRightOne) {
  const auto reply = tiny_service().ask("/v1/chat/completions", "", "GET");
  EXPECT_EQ(reply->status, 405);
  EXPECT_NE(reply->body.find("POST"), std::string::npos);
}

TEST(ApiShapes, QuotedTextIsTheJsonOfThatText) {
  for (const std::string& text : {std::string("a\"b\\c\n\r\t\x01\x1f"), std::string("grün 🦊"), std::string("\0x", 2)}) EXPECT_EQ(parse_json(json_quoted(text), "text"), Json(text));
}

}  // namespace
}  // namespace ridge
