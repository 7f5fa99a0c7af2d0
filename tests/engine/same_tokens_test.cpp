// The same request gives the same tokens with the same probabilities, to the last bit, however it was served: alone, in a full batch, in chunks, in slices, after
// a prefix hit of whole pages or of a part of one, after preemption, and after a stay in host memory. For every kind of layer there is.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>

#include "base/log.h"
#include "cuda/cuda_backend.h"
#include "engine/engine.h"

namespace ridge {
namespace {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;               // of the chosen ones and of the likeliest beside them
  FinishReason finish = FinishReason::none;
  RequestTiming timing;
  bool operator==(const Answer& o) const { return tokens == o.tokens && logprobs == o.logprobs && finish == o.finish; }
};

std::string folder_of(const std::string& name) {
  for (const char* root : {RIDGE_SOURCE_DIR "/tests/data/golden/", RIDGE_SOURCE_DIR "/../shared/golden/"})
    if (std::filesystem::is_directory(root + name)) return root + name;
  return "";
}

// Texts that begin alike in many ways: one of n tokens, its beginnings, and others that part from it.
std::vector<Request> requests_of(int n_vocab, int page_size) {
  std::mt19937 random(7);
  const auto text = [&](int n) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t& t : tokens) t = int32_t(random() % uint32_t(n_vocab));
    return tokens;
  };
  const std::vector<int32_t> first = text(3 * page_size);
  std::vector<Request> requests;
  const auto ask = [&](int n_common, int n_own, int n_new) {
    Request& r = requests.emplace_back();
    r.prompt.assign(first.begin(), first.begin() + n_common);
    const std::vector<int32_t> own = text(n_own);
    r.prompt.insert(r.prompt.end(), own.begin(), own.end());
    r.params = {.temperature = requests.size() % 2 ? 0.0f : 0.9f, .seed = 11, .max_tokens = n_new, .ignore_eos = true, .n_logprobs = 3};
  };
  ask(3 * page_size, 0, page_size + 12);
  ask(3 * page_size, 0, 8);                                    // known wholly
  ask(2 * page_size, 9, 6);                                    // two whole pages
  ask(2 * page_size + page_size / 2 + 3, 12, 10);              // two and a part
  ask(page_size - 3, page_size, 5);                            // a part of one
  ask(0, page_size + 3, 12);
  ask(3 * page_size, page_size / 2, 9);
  return requests;
}

std::map<uint64_t, Answer> answers_of(Engine& engine, const std::function<void()>& between_steps = {}) {
  std::map<uint64_t, Answer> answers;
  for (int n_steps = 0; !engine.idle() && n_steps < 20'000; ++n_steps) {
    for (const Event& event : engine.step()) {
      Answer& a = answers[event.id];
      for (const Sampled& s : event.sampled) {
        a.tokens.push_back(s.token);
        a.logprobs.push_back(s.logprob);
        for (const TokenLogprob& t : s.top) a.logprobs.push_back(t.logprob);
      }
      a.finish = event.finish;
      a.timing = event.timing;
    }
    engine.check_integrity();
    if (between_steps) between_steps();
  }
  EXPECT_TRUE(engine.idle());
  return answers;
}

std::vector<Answer> one_by_one(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Answer> answers;
  for (const Request& request : requests) {
    const uint64_t id = engine.submit(request);
    answers.push_back(answers_of(engine)[id]);
  }
  return answers;
}

std::vector<Answer> together(Engine& engine, const std::vector<Request>& requests) {
  std::vector<uint64_t> ids;
  for (const Request& request : requests) ids.push_back(engine.submit(request));
  auto by_id = answers_of(engine);
  std::vector<Answer> answers;
  for (const uint64_t id : ids) answers.push_back(by_id[id]);
  return answers;
}

struct Served { std::string device, model; FormatId kv = FormatId::unknown; };      // unknown: what the engine takes on its own
void PrintTo(const Served& served, std::ostream* out) { *out << served.model << " on " << served.device; }

class SameTokens : public testing::TestWithParam<Served> {};

TEST_P(SameTokens, HoweverARequestIsServed) {
  const auto& [device, name, kv_format] = GetParam();
  const std::string folder = folder_of(name);
  if (folder.empty()) GTEST_SKIP() << "no golden checkpoint " << name << " beside the project";
  if (const std::string reason = device == "cuda" ? cuda_unavailable_reason() : ""; !reason.empty()) GTEST_SKIP() << reason;
  set_log_level(LogLevel::error);
  const Checkpoint checkpoint = open_checkpoint(folder);
  EngineOptions plain{.device = device, .n_threads = 1};
  if (device == "cpu") plain.activations = FormatId::f32;      // cuda: as it serves, with bf16 activations
  plain.kv_format = kv_format;
  plain.max_seqs = 8;
  plain.max_batch_tokens = 128;
  plain.page_size = 16;
  plain.max_context = 24;
  const int page_size = Engine(checkpoint, plain).options().page_size;       // 64 where there is a state
  plain.max_context = 5 * page_size;
  plain.kv_bytes = int64_t{1} << 28;
  int n_vocab = 0;
  std::vector<Request> requests;
  std::vector<Answer> expected;
  Request next_turn;                         // the first one and its answer, and something new
  Answer expected_of_next_turn;
  int64_t enough = 0;
  const auto expect_same = [&](const std::vector<Answer>& answers, const std::string& how) {
    ASSERT_EQ(answers.size(), expected.size());
    for (size_t i = 0; i < answers.size(); ++i) EXPECT_TRUE(answers[i] == expected[i]) << name << ", request " << i << ", " << how;
  };
  {
    Engine engine(checkpoint, plain);
    n_vocab = engine.model().n_vocab;
    requests = requests_of(n_vocab, page_size);
    expected = one_by_one(engine, requests);
    for (const Answer& a : expected) EXPECT_EQ(a.finish, FinishReason::length);
    next_turn = requests[0];
    next_turn.prompt.insert(next_turn.prompt.end(), expected[0].tokens.begin(), expected[0].tokens.end());
    next_turn.prompt.insert(next_turn.prompt.end(), {3, 4});
    next_turn.params.max_tokens = 2;
    expected_of_next_turn = one_by_one(engine, {next_turn}).front();
    expect_same(together(engine, requests), "in a full batch");
    // Memory for hardly more than one of them.
    for (int g = 0; g < engine.kv().n_groups(); ++g) enough += engine.kv().page_bytes(g) * 6;
  }
  if (device == "cuda") {                      // other kernels than for few
    EngineOptions o = plain;
    o.max_seqs = 64;
    o.max_batch_tokens = 512;
    Engine engine(checkpoint, o);
    std::vector<Request> crowd;
    for (size_t i = 0; i < 64; ++i) crowd.push_back(requests[i % requests.size()]);
    const auto answers = together(engine, crowd);
    for (size_t i = 0; i < crowd.size(); ++i) EXPECT_TRUE(answers[i] == expected[i % requests.size()]) << name << ", request " << i << " in a batch of 64";
  }
  {
    EngineOptions o = plain;
    o.max_batch_tokens = 7;
    Engine engine(checkpoint, o);
    expect_same(together(engine, requests), "in chunks");
  }
  EngineOptions cached = plain;
  cached.prefix_cache = true;
  {
    Engine engine(checkpoint, cached);
    const auto answers = one_by_one(engine, requests);
    expect_same(answers, "after a prefix hit");
    EXPECT_EQ(answers[1].timing.n_cached, 3 * page_size - 1) << "known wholly";
    EXPECT_EQ(answers[2].timing.n_cached, 2 * page_size);
    EXPECT_EQ(answers[3].timing.n_cached, 2 * page_size + page_size / 2 + 3);
    EXPECT_EQ(answers[4].timing.n_cached, page_size - 3);
    EXPECT_EQ(answers[5].timing.n_cached, 0);
    EXPECT_EQ(answers[6].timing.n_cached, 3 * page_size);
    const Answer turn = one_by_one(engine, {next_turn}).front();
    EXPECT_TRUE(turn == expected_of_next_turn) << name << ", the next turn";
    EXPECT_EQ(turn.timing.n_cached, int(next_turn.prompt.size()) - 3) << "of an answer all tokens but the last were computed";
    expect_same(one_by_one(engine, requests), "after a prefix hit of everything");
    EXPECT_GT(engine.flush_cache(), 0);
    for (int g = 0; g < engine.kv().n_groups(); ++g) EXPECT_EQ(engine.kv().n_free_pages(g), engine.kv().n_pages(g));
    expect_same(together(engine, requests), "of a prefix that another was computing");
    EXPECT_GT(engine.cache_report().n_hits, 10);
  }
  bool sees_everything = true;
  int64_t n_swapped = 0;
  for (const bool shared : {true, false})
    for (const bool swaps : {false, true}) {
      EngineOptions o = shared ? cached : plain;
      o.kv_bytes = enough;
      o.max_batch_tokens = 40;
      o.swap_bytes = swaps ? enough : 0;
      Engine engine(checkpoint, o);
      std::mt19937 random(3);
      std::vector<Answer> answers;
      for (int round = 0; round < 3; ++round) {
        // Earlier arrivals take the pages of later ones, and everybody is thrown out at some time.
        std::vector<uint64_t> ids;
        for (const Request& request : requests) ids.push_back(engine.submit(request));
        auto by_id = answers_of(engine, [&] {
          if (random() % 4 == 0) engine.preempt(ids[random() % ids.size()]);
        });
        answers.clear();
        for (const uint64_t id : ids) answers.push_back(by_id[id]);
        expect_same(answers, std::string("after preemption") + (shared ? ", cached" : "") + (swaps ? ", swapped" : ""));
      }
      EXPECT_GT(engine.stats().n_preemptions, 3) << "the test no longer reaches preemption";
      n_swapped += engine.cache_report().n_swapped_in;
      for (int g = 0; g < engine.kv().n_groups(); ++g) sees_everything &= engine.kv().spec(g).kind == KvKind::attention && engine.kv().spec(g).window == 0;
    }
  if (sees_everything) {
    EXPECT_GT(n_swapped, 0) << "the test no longer reaches host memory";
  }
  {
    // A step may take hardly longer for the prefill in it: everything that arrives while another decodes is computed in slices.
    EngineOptions o = cached;
    o.max_slowdown = 0.01;
    Engine engine(checkpoint, o);
    one_by_one(engine, {requests[5], requests[5], requests[0]});     // the cost of steps becomes known
    engine.flush_cache();
    std::vector<uint64_t> ids;
    std::map<uint64_t, Answer> by_id;
    for (const Request& request : requests) {
      ids.push_back(engine.submit(request));
      for (int i = 0; i < 3; ++i)
        for (const Event& event : engine.step())
          for (const Sampled& s : event.sampled) {
            by_id[event.id].tokens.push_back(s.token);
            by_id[event.id].finish = event.finish;
          }
      engine.check_integrity();
    }
    for (auto& [id, rest] : answers_of(engine)) {
      Answer& a = by_id[id];
      a.tokens.insert(a.tokens.end(), rest.tokens.begin(), rest.tokens.end());
    }
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(by_id[ids[i]].tokens, expected[i].tokens) << name << ", request " << i << ", in slices";
  }
  set_log_level(LogLevel::info);
}

// Logprobs need the whole row, so they take the other way.
TEST_P(SameTokens, WhetherTheDevicePicksOutTheLargestLogitsOrNot) {
  const auto& [device, name, kv_format] = GetParam();
  const std::string folder = folder_of(name);
  if (folder.empty()) GTEST_SKIP() << "no golden checkpoint " << name << " beside the project";
  if (const std::string reason = device == "cuda" ? cuda_unavailable_reason() : ""; !reason.empty()) GTEST_SKIP() << reason;
  if (device != "cuda") GTEST_SKIP() << "on " << device << " rows of logits are where the host reads them";
  EngineOptions options{.device = device};
  options.kv_format = kv_format;
  options.max_seqs = 8;
  options.max_context = 256;
  const Checkpoint checkpoint = open_checkpoint(folder);
  Engine engine(checkpoint, options);
  std::vector<Request> requests = requests_of(engine.model().n_vocab, 16);
  for (size_t i = 0; i < requests.size(); ++i) {
    SamplingParams& p = requests[i].params;
    p.temperature = i == 2 ? 0.0f : 0.9f;
    p.top_k = i == 5 ? 0 : 5 + 7 * int(i), p.top_p = i % 2 ? 0.9f : 1.0f, p.min_p = i == 3 ? 0.02f : 0.0f;
    p.repetition_penalty = i % 3 ? 1.0f : 1.2f, p.presence_penalty = i == 4 ? 0.5f : 0.0f, p.min_tokens = i == 6 ? 5 : 0;
    p.max_tokens = 30;
  }
  const std::vector<Answer> whole = together(engine, requests);
  for (Request& request : requests) request.params.n_logprobs = -1;
  const std::vector<Answer> picked = together(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(picked[i].tokens, whole[i].tokens) << name << ", request " << i;
}

std::vector<Served> on(const std::string& device, const std::vector<std::string>& models, FormatId kv = FormatId::unknown) {
  std::vector<Served> all;
  for (const std::string& model : models) all.push_back({device, model, kv});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, SameTokens,
                         testing::ValuesIn(on("cpu", {"llama", "qwen3", "qwen3_moe", "mistral_swa", "gemma3", "gpt_oss", "deepseek_v3", "deepseek_v4", "mamba", "mamba2", "qwen3_next",
                                                      "falcon_h1", "lfm2", "kimi_linear", "phi3_longrope_cross"})),
                         [](const auto& info) { return info.param.model; });
INSTANTIATE_TEST_SUITE_P(Cuda, SameTokens,
                         testing::ValuesIn(on("cuda", {"llama", "qwen3", "qwen2", "mistral_swa", "gemma3", "phi3_longrope_cross", "arcee", "gemma4_shared_kv", "hunyuan_alpha",
                                                       "stablelm_qk_norm_parallel", "ministral3_temperature"})),
                         [](const auto& info) { return info.param.model; });
INSTANTIATE_TEST_SUITE_P(Fp8Kv, SameTokens, testing::ValuesIn(on("cpu", {"llama", "mistral_swa", "gpt_oss", "qwen3_next"}, FormatId::fp8_e4m3)), [](const auto& info) { return info.param.model; });
INSTANTIATE_TEST_SUITE_P(CudaFp8Kv, SameTokens, testing::ValuesIn(on("cuda", {"llama", "qwen3", "mistral_swa", "gemma3"}, FormatId::fp8_e4m3)),
                         [](const auto& info) { return info.param.model; });

}  // namespace
}  // namespace ridge
