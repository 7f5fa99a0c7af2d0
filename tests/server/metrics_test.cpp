// What /metrics says of requests that were answered, without an engine.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "server/metrics.h"

namespace ridge {
namespace {

using namespace std::chrono_literals;

std::map<std::string, double> figures_of(const std::string& text) {
  std::map<std::string, double> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("#")) out[line.substr(0, line.rfind(' '))] = std::stod(line.substr(line.rfind(' ') + 1));
  return out;
}

void answer(Metrics& metrics, uint64_t id, int n_tokens, std::chrono::milliseconds apart) {
  const TimePoint arrived = std::chrono::steady_clock::now();
  RequestTiming timing{.arrived = arrived, .scheduled = arrived + 5ms, .first_token = arrived + 20ms, .finished = arrived + 20ms + (n_tokens - 1) * apart, .n_prompt = 100, .n_cached = 64, .n_generated = n_tokens};
  for (int i = 0; i < n_tokens; ++i) {
    Event event{.id = id, .sampled = {Sampled{.token = i}}, .finish = i == n_tokens - 1 ? FinishReason::stop : FinishReason::none};
    metrics.on_tokens(event, timing.first_token + i * apart);
  }
  metrics.on_finished(timing, "stop");
}

TEST(Metrics, TokensAndTimesOfAnswersAreCounted) {
  Metrics metrics(false);
  answer(metrics, 1, 5, 12ms);
  answer(metrics, 2, 1, 12ms);
  metrics.on_finished({}, "cancelled");
  auto f = figures_of(metrics.text({}));
  EXPECT_EQ(f.at("ridge_prompt_tokens_total"), 200);
  EXPECT_EQ(f.at("ridge_cached_tokens_total"), 128);
  EXPECT_EQ(f.at("ridge_generated_tokens_total"), 6);
  EXPECT_EQ(f.at("ridge_requests_total{finish=\"stop\"}"), 2);
  EXPECT_EQ(f.at("ridge_requests_total{finish=\"cancelled\"}"), 1);
  EXPECT_EQ(f.at("ridge_time_to_first_token_seconds_count"), 2);
  EXPECT_NEAR(f.at("ridge_time_to_first_token_seconds_sum"), 0.04, 1e-6);
  EXPECT_EQ(f.at("ridge_inter_token_seconds_count"), 4);
  EXPECT_NEAR(f.at("ridge_inter_token_seconds_sum"), 0.048, 1e-6);
  EXPECT_EQ(f.at("ridge_inter_token_seconds_bucket{le=\"0.01\"}"), 0);
  EXPECT_EQ(f.at("ridge_inter_token_seconds_bucket{le=\"0.015\"}"), 4);
  EXPECT_EQ(f.at("ridge_time_per_output_token_seconds_count"), 1);      // an answer of one token has none
  EXPECT_GT(f.at("process_resident_memory_bytes"), 1e6);
  for (const auto& [name, value] : f) EXPECT_FALSE(name.starts_with("vllm:")) << name;
}

TEST(Metrics, TheSameFiguresHaveVllmsNamesWhereWanted) {
  Metrics metrics(true);
  answer(metrics, 1, 3, 10ms);
  auto f = figures_of(metrics.text({}));
  EXPECT_EQ(f.at("vllm:generation_tokens_total{model_name=\"\"}"), f.at("ridge_generated_tokens_total"));
  EXPECT_EQ(f.at("vllm:request_success_total{finished_reason=\"stop\",model_name=\"\"}"), 1);
  EXPECT_EQ(f.at("vllm:inter_token_latency_seconds_count{model_name=\"\"}"), 2);
}

}  // namespace
}  // namespace ridge
