#include "cli/bench_plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Tokens that a tokenizer could have made; which ones does not matter for speed.
std::vector<int32_t> some_tokens(int n, int n_vocab, uint64_t seed) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    tokens.push_back(int32_t((seed >> 33) % uint64_t(n_vocab)));
  }
  return tokens;
}

void submit(Engine& engine, const BenchTest& test, int n_prompt, int n_answer, std::vector<uint64_t>& ids) {
  SamplingParams params = test.sampling;
  params.max_tokens = n_answer;
  params.ignore_eos = true;
  for (int b = 0; b < test.batch; ++b) {
    params.seed = uint64_t(b);
    ids.push_back(engine.submit({.prompt = some_tokens(n_prompt, engine.model().n_vocab, uint64_t(b) + 1), .params = params}));
  }
}

void step(Engine& engine, std::vector<int>* n_sampled = nullptr, const std::vector<uint64_t>* ids = nullptr) {
  for (const Event& event : engine.step()) {
    if (event.finish == FinishReason::error) fail("the benchmark's sequence failed: {}", event.error);
    if (n_sampled) (*n_sampled)[size_t(std::find(ids->begin(), ids->end(), event.id) - ids->begin())] += int(event.sampled.size());
  }
}

void drain(Engine& engine, const std::vector<uint64_t>& ids) {
  for (const uint64_t id : ids) engine.cancel(id);
  while (!engine.idle()) engine.step();
}

// The step in which the depth is reached is split by tokens.
void prefill(Engine& engine, const BenchTest& test, BenchResult& into) {
  std::vector<uint64_t> ids;
  const int64_t skipped = int64_t{test.depth} * test.batch, all = skipped + int64_t{test.n_tokens} * test.batch, at_start = engine.stats().n_prefill_tokens;
  submit(engine, test, test.depth + test.n_tokens, 1, ids);
  double seconds = 0;
  int64_t done = 0;
  engine.ledger().reset();
  while (done < all && !engine.idle()) {
    const auto start = Clock::now();
    step(engine);
    const double took = seconds_since(start);
    const int64_t now = engine.stats().n_prefill_tokens - at_start, counted = std::max(now, skipped) - std::max(done, skipped);
    if (now > done) seconds += took * double(counted) / double(now - done);
    else if (done >= skipped) seconds += took;
    done = now;
  }
  drain(engine, ids);
  into.seconds.push_back(seconds);
  into.n_tokens = int64_t{test.n_tokens} * test.batch;
  into.n_steps = std::max<int64_t>(engine.ledger().n_steps(), 1);
  into.bytes_per_step = double(engine.ledger().total().bytes()) / double(into.n_steps);
}

void decode(Engine& engine, const BenchTest& test, BenchResult& into) {
  std::vector<uint64_t> ids;
  submit(engine, test, std::max(test.depth, 1), test.n_tokens + 64 + test.batch, ids);
  std::vector<int> n_sampled(ids.size());
  while (*std::min_element(n_sampled.begin(), n_sampled.end()) < 1) step(engine, &n_sampled, &ids);
  engine.ledger().reset();
  const int64_t before = engine.stats().n_decode_tokens;
  const auto start = Clock::now();
  for (int i = 0; i < test.n_tokens; ++i) step(engine);
  into.seconds.push_back(seconds_since(start));
  into.n_tokens = engine.stats().n_decode_tokens - before;
  into.n_steps = test.n_tokens;
  into.bytes_per_step = double(engine.ledger().total().bytes()) / test.n_tokens;
  drain(engine, ids);
}

}  // namespace

std::string BenchTest::name() const {
  std::string text = fmt::format("{}{}", kind == Kind::prefill ? "pp" : "tg", n_tokens);
  if (depth > 0) text += fmt::format(" @ d{}", depth);
  if (batch > 1) text += fmt::format(" x {}", batch);
  if (kind == Kind::prefill || sampling.greedy()) return text;
  text += fmt::format(" temp {:g}", sampling.temperature);
  if (sampling.top_k > 0) text += fmt::format(" top-k {}", sampling.top_k);
  if (sampling.top_p < 1) text += fmt::format(" top-p {:g}", sampling.top_p);
  if (sampling.min_p > 0) text += fmt::format(" min-p {:g}", sampling.min_p);
  return text;
}

double BenchResult::best_speed() const { return seconds.empty() ? 0 : double(n_tokens) / *std::min_element(seconds.begin(), seconds.end()); }

double BenchResult::mean_speed() const {
  double sum = 0;
  for (const double s : seconds) sum += double(n_tokens) / s;
  return seconds.empty() ? 0 : sum / double(seconds.size());
}

double BenchResult::spread() const {
  double sum = 0;
  for (const double s : seconds) sum += std::pow(double(n_tokens) / s - mean_speed(), 2);
  return seconds.size() < 2 ? 0 : std::sqrt(sum / double(seconds.size() - 1));
}

double BenchResult::bytes_per_second() const { return seconds.empty() ? 0 : bytes_per_step * double(n_steps) / *std::min_element(seconds.begin(), seconds.end()); }

void run_once(Engine& engine, const BenchTest& test, BenchResult& into) {
  into.test = test;
  if (test.kind == BenchTest::Kind::prefill) prefill(engine, test, into);
  else decode(engine, test, into);
}

int64_t kv_bytes_needed(const Json& config, int64_t n_tokens, int batch, FormatId kv_format) {
  const auto number = [&](const char* key, int64_t otherwise) { return config.contains(key) && config[key].is_number_integer() ? config[key].get<int64_t>() : otherwise; };
  const int64_t n_heads = number("num_attention_heads", number("n_head", 1)), d_model = number("hidden_size", number("n_embd", 1));
  const int64_t n_kv_heads = number("num_key_value_heads", n_heads), head_dim = number("head_dim", d_model / std::max<int64_t>(n_heads, 1));
  const int64_t per_token = number("num_hidden_layers", number("n_layer", 1)) * 2 * entry_bytes({.n_heads = int(n_kv_heads), .head_dim = int(head_dim), .format = kv_format});
  return per_token * (n_tokens + 256) * batch / 8 * 9;
}

}  // namespace ridge
