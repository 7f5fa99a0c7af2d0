// The parts of `ridge bench serve` that need no server: percentiles, goodput, workloads, arrivals, request bodies, streams in any pieces, and the plot.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>

#include "base/error.h"
#include "cli/bench_serve_client.h"
#include "cli/bench_serve_plot.h"

namespace ridge::load {
namespace {

Outcome outcome(double due, double first, double end, int n) {
  Outcome o;
  o.due = due, o.first = first, o.end = end, o.n_generated = n, o.n_prompt = 10;
  return o;
}

std::string temporary(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(Percentile, IsLinearBetweenRanks) {
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 1), 4);
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 0), 1);
  EXPECT_DOUBLE_EQ(percentile({10, 20}, 0.99), 19.9);
  EXPECT_DOUBLE_EQ(percentile({7}, 0.95), 7);
  EXPECT_DOUBLE_EQ(percentile({}, 0.5), 0);
}

TEST(Goodput, CountsRequestsThatKeepEveryTarget) {
  LoadPoint point{.rate = 4, .seconds = 2};
  point.outcomes = {outcome(0, 0.1, 1.0, 10), outcome(0, 0.5, 1.4, 10), outcome(0, 0.1, 1.9, 10)};      // TTFT 100, 500, 100 ms; TPOT 100, 100, 200 ms
  point.outcomes.push_back(outcome(0, 0.1, 0.2, 10));
  point.outcomes.back().error = "refused";
  const Figures f = figures_of(point, {.ttft_ms = 200, .tpot_ms = 150});
  EXPECT_EQ(f.n_done, 3);
  EXPECT_EQ(f.n_failed, 1);
  EXPECT_EQ(f.n_good, 1);
  EXPECT_EQ(f.peak_concurrency, 4);
  const Json json = to_json(point, {.ttft_ms = 200, .tpot_ms = 150});
  EXPECT_DOUBLE_EQ(json["request_goodput"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(json["output_throughput"].get<double>(), 15);
  EXPECT_NEAR(json["median_ttft_ms"].get<double>(), 100, 1e-9);
  EXPECT_NEAR(json["p99_tpot_ms"].get<double>(), 198, 1e-9);
  EXPECT_EQ(json["first_error"], "refused");
  EXPECT_NE(report(point, {}).find("no target"), std::string::npos);
  EXPECT_NE(summary({point}, {.ttft_ms = 200, .tpot_ms = 150}).aligned().find("25 %"), std::string::npos);
}

TEST(Workload, IsTheSameForASeedAndSharesItsPrefixOnly) {
  WorkloadFlags flags{.n_prompts = 6, .n_input = 30, .n_output = 5, .n_prefix = 20, .n_vocab = 1000, .seed = 3};
  const auto a = make_workload(flags), b = make_workload(flags);
  std::set<std::vector<int32_t>> tails;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].turns[0].ids.size(), 50u);
    EXPECT_EQ(a[i].turns[0].ids, b[i].turns[0].ids);
    EXPECT_TRUE(std::equal(a[i].turns[0].ids.begin(), a[i].turns[0].ids.begin() + 20, a[0].turns[0].ids.begin()));
    tails.insert({a[i].turns[0].ids.begin() + 20, a[i].turns[0].ids.end()});
    for (const int32_t id : a[i].turns[0].ids) EXPECT_TRUE(id >= 0 && id < 1000);
  }
  EXPECT_EQ(tails.size(), 6u);
  flags.seed = 4;
  EXPECT_NE(make_workload(flags)[0].turns[0].ids, a[0].turns[0].ids);
  flags.n_vocab = 0, flags.range_ratio = 0.5;
  std::set<size_t> lengths;
  for (const Conversation& c : make_workload(flags)) lengths.insert(size_t(std::count(c.turns[0].text.begin(), c.turns[0].text.end(), ' ')) + 1);
  EXPECT_GT(lengths.size(), 2u);
  EXPECT_GE(*lengths.begin(), 35u);
  EXPECT_LE(*lengths.rbegin(), 65u);
}

TEST(Arrivals, HaveTheRateAndThePoissonSpreadAskedFor) {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    std::vector<Conversation> all(20000);
    set_arrivals(all, 50, burstiness, 1);
    const double mean = all.back().at / double(all.size() - 1);
    double variance = 0;
    for (size_t i = 1; i < all.size(); ++i) variance += std::pow(all[i].at - all[i - 1].at - mean, 2) / double(all.size());
    EXPECT_NEAR(mean, 0.02, 0.02 * 0.05) << burstiness;
    EXPECT_NEAR(variance / (mean * mean), 1 / burstiness, 0.15 / burstiness) << burstiness;      // the squared coefficient of variation of gamma gaps
  }
}

TEST(ShareGpt, GivesFirstTurnsWithTheLengthsOfTheirAnswers) {
  const std::string path = temporary("sharegpt.json", R"([{"id": "a", "conversations": [{"from": "human", "value": "Why is the sky blue, please?"}, {"from": "gpt", "value": ")" + std::string(400, 'x') + R"("}]},
    {"conversations": []}, {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hi"}]}, 7])");
  const auto all = make_workload({.dataset = "sharegpt", .path = path, .n_prompts = 10});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].turns[0].text, "Why is the sky blue, please?");
  EXPECT_EQ(all[0].turns[0].max_tokens, 100);
  EXPECT_EQ(make_workload({.dataset = "sharegpt", .path = path, .n_output = 9, .output_given = true})[0].turns[0].max_tokens, 9);
}

TEST(Trace, KeepsTimesAndSharesBlocksOfEqualIds) {
  const std::string path = temporary("trace.jsonl", R"({"timestamp": 5000, "input_length": 700, "output_length": 20, "hash_ids": [1, 2]}

{"timestamp": 5250, "input_length": 600, "output_length": 30, "hash_ids": [1, 3]}
{"timestamp": 6000, "prompt": "hello there", "max_tokens": 4}
{"timestamp": 6500, "messages": [{"role": "user", "content": "hi"}]})");
  const auto all = make_workload({.dataset = "trace", .path = path, .n_output = 11, .n_vocab = 500});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_DOUBLE_EQ(all[0].at, 0);
  EXPECT_DOUBLE_EQ(all[1].at, 0.25);
  const auto &a = all[0].turns[0], &b = all[1].turns[0];
  EXPECT_EQ(a.ids.size(), 700u);
  EXPECT_EQ(b.ids.size(), 600u);
  EXPECT_TRUE(std::equal(a.ids.begin(), a.ids.begin() + 512, b.ids.begin()));
  EXPECT_FALSE(std::equal(a.ids.begin() + 512, a.ids.begin() + 600, b.ids.begin() + 512));
  EXPECT_EQ(b.max_tokens, 30);
  EXPECT_EQ(all[2].turns[0].text, "hello there");
  EXPECT_EQ(all[3].turns[0].max_tokens, 11);
  EXPECT_THROW(make_workload({.dataset = "trace", .path = temporary("bad.jsonl", "{\"prompt\": 7}\n")}), Error);
  EXPECT_THROW(make_workload({.dataset = "trace", .path = temporary("bad2.jsonl", "{\"input_length\": -3}\n")}), Error);
  EXPECT_THROW(make_workload({.dataset = "trace"}), Error);
}

TEST(RequestBody, CarriesTheConversationSoFar) {
  Conversation c;
  c.turns.resize(2);
  c.turns[0].text = "one", c.turns[1].text = "two", c.turns[1].max_tokens = 7;
  RequestFlags flags{.model = "m", .chat = true, .extra = {{"temperature", 0.0}}};
  const Json chat = Json::parse(request_body(flags, c, 1, {"ein\xff"}));
  EXPECT_EQ(chat["messages"].size(), 3u);
  EXPECT_EQ(chat["messages"][1]["role"], "assistant");
  EXPECT_EQ(chat["messages"][2]["content"], "two");
  EXPECT_EQ(chat["max_tokens"], 7);
  EXPECT_EQ(chat["stream"], true);
  EXPECT_EQ(chat["temperature"], 0.0);
  flags.chat = false;
  EXPECT_EQ(Json::parse(request_body(flags, c, 1, {"ein"}))["prompt"], "one\nein\ntwo");
  c.turns[0].ids = {1, 2};
  EXPECT_EQ(Json::parse(request_body(flags, c, 0, {}))["prompt"], Json({1, 2}));
  flags.chat = true;
  EXPECT_THROW(request_body(flags, c, 0, {}), Error);
}

constexpr const char* kStream =
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n: ping\r\n\r\n"
    "data: {\"choices\": [{\"delta\": {\"content\": \"say \\\"content\\\":\\\"x\\\"\"}}]}\r\n\r\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\" two\"}}]}\n\ndata:{\"choices\":[{\"delta\":{\"reasoning_content\":\"three\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n";

TEST(AnswerStream, ReadsTheSameFromAnyPieces) {
  const std::string all = kStream;
  for (const size_t size : {size_t(1), size_t(3), size_t(50), all.size()}) {
    AnswerStream answer(true);
    double now = 1;
    for (size_t at = 0; at < all.size(); at += size) answer.feed(std::string_view(all).substr(at, size), now += 1);
    EXPECT_TRUE(answer.done());
    EXPECT_EQ(answer.text, "say \"content\":\"x\" two");
    EXPECT_EQ(answer.outcome.gaps.size(), 2u);
    EXPECT_EQ(answer.outcome.n_generated, 5);
    EXPECT_EQ(answer.outcome.n_prompt, 12);
    EXPECT_EQ(answer.outcome.n_cached, 8);
    EXPECT_EQ(answer.outcome.error, "");
  }
}

TEST(AnswerStream, TimesTheFirstTextAndTheGapsAfterIt) {
  AnswerStream answer(false);
  answer.feed("data: {\"choices\":[{\"text\":\"\"}]}\n\n", 1);
  answer.feed("data: {\"choices\":[{\"text\":\"a\"}]}\n\n", 2);
  answer.feed("data: {\"choices\":[{\"text\":\"b\"}]}\n\n", 5);
  EXPECT_DOUBLE_EQ(answer.outcome.first, 2);
  EXPECT_EQ(answer.outcome.gaps, std::vector<double>{3});
  EXPECT_DOUBLE_EQ(answer.outcome.end, 5);
  answer.feed("data: {\"error\": {\"message\": \"gone\"}}\n\n", 6);
  EXPECT_NE(answer.outcome.error.find("gone"), std::string::npos);
}

TEST(Plot, HasRoundTicksThatReachTheTop) {
  EXPECT_EQ(axis_ticks(7.3, 4), (std::vector<double>{0, 2, 4, 6, 8}));
  EXPECT_EQ(axis_ticks(100, 5), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_GE(axis_ticks(0, 5).back(), 1);
  EXPECT_GE(axis_ticks(INFINITY, 5).back(), 1);
}

TEST(Plot, IsWellFormedAndTakesAnyTitle) {
  std::vector<LoadPoint> points;
  for (const double rate : {1.0, 4.0, 2.0}) {
    points.push_back({.rate = rate, .seconds = 2});
    points.back().outcomes = {outcome(0, 0.1, 1.0, 10), outcome(0, 0.9, 1.4, 10)};
  }
  const std::string svg = goodput_svg(points, {.ttft_ms = 500}, "<script> & \"quotes\"");
  EXPECT_EQ(svg.find("<script>"), std::string::npos);
  EXPECT_NE(svg.find("&lt;script&gt; &amp;"), std::string::npos);
  EXPECT_NE(svg.find("requests per second asked"), std::string::npos);
  EXPECT_NE(svg.find("within TTFT 500 ms"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(goodput_svg({}, {}, "none").find("nan"), std::string::npos);
}

}  // namespace
}  // namespace ridge::load
