// Penalties and biases on the device that chooses: the token, and the logits it is chosen from, are the sampler's, bit for bit; and the row is left as the model made it.
#include "conformance/conformance.h"
#include "cuda/cuda_backend.h"
#include "sample/sampler.h"
#include "sequence/batch.h"

namespace ridge::conformance {
namespace {

constexpr int kRows = 7, kWidth = 64;

// Sequences whose next tokens are chosen from rows of logits: of tokens that are likely, and of any.
std::vector<Sequence> random_sequences(Rng& rng, const Matrix& logits, int round) {
  const auto some = [&](std::initializer_list<float> values) { return *(values.begin() + rng() % values.size()); };
  std::vector<Sequence> sequences(kRows);
  std::vector<TokenLogprob> likely;
  for (int r = 0; r < kRows; ++r) {
    Sequence& s = sequences[size_t(r)];
    select_top_k(likely, {logits.row(r), size_t(logits.cols)}, 50);
    const int n = pick(rng, {1, 6, 40, 700, 9000});
    for (int i = 0; i < n; ++i) s.tokens.push_back(rng() % 3 ? likely[rng() % likely.size()].token : int32_t(rng() % uint64_t(logits.cols)));
    s.n_prompt = 1 + int(rng() % uint32_t(n));
    s.params = {.temperature = some({0.0f, 0.9f, 0.3f}), .top_k = int(some({0, 40})), .top_p = some({1.0f, 0.8f}), .min_p = some({0.0f, 0.02f}), .repetition_penalty = some({1.0f, 1.3f, 0.7f}), .presence_penalty = some({0.0f, 0.9f, -0.3f}),
                .frequency_penalty = some({0.0f, 0.37f}), .penalty_last_n = int(some({-1, 0, 1, 12})), .n_logprobs = int(some({-1, 0, 6}))};
    if (r == 0) s.params = {.temperature = 0};                               // one without any
    if (r == 1) s.params.repetition_penalty = 1.3f, s.params.penalty_last_n = -1;
    if (r >= 4)                                                              // of tokens with penalties, of others, of what would be chosen; the last row has nothing else
      for (int i = 0; i < 30; ++i) s.params.logit_bias[i % 3 ? likely[rng() % likely.size()].token : i % 2 ? s.tokens[rng() % s.tokens.size()] : int32_t(rng() % uint64_t(logits.cols))] = some({1.5f, -0.7f, 100.0f / float(1 + i), -INFINITY});
    if (r == kRows - 1) s.params.repetition_penalty = 1.0f, s.params.presence_penalty = s.params.frequency_penalty = 0.0f;
    s.seed = 10 * uint64_t(round) + uint64_t(r);
  }
  return sequences;
}

void write_step(Step& step, std::vector<Sequence>& sequences, bool ahead) {
  step.clear();
  step.set_page_size(64);
  step.add_seq({.slot = 0, .first_row = 0, .n_rows = kRows, .n_context = kRows, .rope_row = 0, .first_page = {}});
  for (int r = 0; r < kRows; ++r) step.add_token(ahead ? -1 - r : sequences[size_t(r)].tokens.back(), r, 0, true);
  for (int r = 0; r < kRows; ++r) {
    Sequence& s = sequences[size_t(r)];
    Draw draw;
    if (!s.params.greedy())
      draw = {.u = uniform(s.seed, uint64_t(s.n_generated() + ahead)), .sharpness = 1.0 / s.params.temperature, .top_p = s.params.top_p, .min_p = s.params.min_p, .top_k = s.params.top_k};
    const auto penalties = add_penalties(step, s, s.n_known() + ahead);
    ASSERT_TRUE(penalties);
    draw.penalties = *penalties;
    draw.n_logprobs = s.params.n_logprobs;
    step.set_draw(r, draw);
  }
}

// What a step says of a row's token, beside what the sampler says.
void expect_score(const Score* scores, int row, int n_logprobs, const Sampled& sampled, const std::string& what) {
  ASSERT_NE(scores, nullptr) << what;
  const std::optional<Sampled> scored = score_of(scores[row], sampled.token, n_logprobs);
  ASSERT_TRUE(scored) << what << ", row " << row;
  EXPECT_NEAR(scored->logprob, sampled.logprob, 1e-6) << what << ", row " << row;
  ASSERT_EQ(scored->top.size(), sampled.top.size());
  for (size_t i = 0; i < scored->top.size(); ++i) EXPECT_EQ(scored->top[i].token, sampled.top[i].token) << what << ", row " << row << ", place " << i;
}

// What a step chose, beside what the sampler makes of its logits as they are now. Returns how many draws were left open, as those of top_p alone may be.
int expect_the_samplers(const Peak* peaks, const Score* scores, const Matrix& logits, const std::vector<Sequence>& sequences, const std::string& what) {
  Sampler sampler(int(logits.cols));
  int n_open = 0;
  for (int r = 0; r < kRows; ++r) {
    const Sequence& s = sequences[size_t(r)];
    std::vector<float> row(logits.row(r), logits.row(r) + logits.cols);
    const Sampled sampled = sampler.sample(row, {.params = s.params, .history = s.tokens, .n_prompt = s.n_prompt, .seed = s.seed, .counter = uint64_t(s.n_generated())});
    if (peaks[r].token < 0 && s.params.top_k == 0 && s.params.top_p < 1.0f) {
      n_open++;
      continue;
    }
    EXPECT_EQ(peaks[r].token, sampled.token) << what << ", row " << r;
    if (s.params.n_logprobs >= 0) expect_score(scores, r, s.params.n_logprobs, sampled, what);
    EXPECT_EQ(peaks[r].logit, row[size_t(sampled.token)]) << what << ", row " << r;
  }
  return n_open;
}

void expect_penalties_of_the_sampler(const std::function<std::unique_ptr<Backend>()>& make, const std::string& name) {
  for (const int n_vocab : {300, 30'000}) {
    Rng rng(33);
    const auto table_of = encode(random_matrix(rng, n_vocab, kWidth), FormatId::f32),
               head_of = encode(random_matrix(rng, n_vocab, kWidth, 0.3f), FormatId::bf16);
    const auto backend = make();
    const Weight table = backend->prepare_table(table_of->stored), head = backend->prepare(head_of->stored, kFloat);
    const Tensor x = backend->allocate_f32(kRows, kWidth), logits = backend->allocate_f32(kRows, n_vocab);
    const Peak* const peaks = backend->watch_peaks(logits);
    ASSERT_NE(peaks, nullptr);
    const StepLimits limits{.max_tokens = kRows, .max_seqs = 1, .max_logits = kRows, .max_pages = 1, .max_counts = kRows * 9001};
    Step plain(limits), first(limits), second(limits);
    const auto submit = [&](const Step& step) {
      backend->begin(step);
      backend->run(Embed{.out = x, .table = &table});
      backend->run(Matmul{.out = {logits}, .x = x, .w = {&head}});
      backend->submit();
    };
    int n_changed = 0, n_open = 0;
    for (int round = 0; round < 6; ++round) {                                // a shape's graph is captured in the second and replayed in the others, with other lists
      const std::string what = fmt::format("{}, {} tokens, round {}", name, n_vocab, round);
      // The logits of some tokens, and sequences that end with them and have penalties for what is likely.
      std::vector<Sequence> sequences(kRows);
      for (Sequence& s : sequences) s.tokens = {int32_t(rng() % uint32_t(n_vocab))}, s.n_prompt = 1, s.params.temperature = 0;
      write_step(plain, sequences, false);
      submit(plain);
      backend->wait();
      const Matrix unpenalised = get(*backend, logits);
      std::vector<int32_t> unpenalised_peaks;
      for (int r = 0; r < kRows; ++r) unpenalised_peaks.push_back(peaks[r].token);
      std::vector<Sequence> penalised = random_sequences(rng, unpenalised, round);
      for (int r = 0; r < kRows; ++r) penalised[size_t(r)].tokens.back() = sequences[size_t(r)].tokens[0];
      write_step(first, penalised, false);
      submit(first);
      backend->wait();
      const Matrix after = get(*backend, logits);
      expect_same(after, unpenalised, what + ": the rows are as they were");
      n_open += expect_the_samplers(peaks, backend->watched_scores(), after, penalised, what);
      for (int r = 0; r < kRows; ++r) n_changed += peaks[r].token != unpenalised_peaks[size_t(r)];
      if (testing::Test::HasFailure()) return;
      // The same with a step behind it, of which the host knows no token.
      std::vector<int32_t> chosen;
      for (int r = 0; r < kRows; ++r) chosen.push_back(peaks[r].token);
      write_step(second, penalised, true);
      submit(first);
      submit(second);
      backend->wait();
      for (int r = 0; r < kRows; ++r) ASSERT_EQ(peaks[r].token, chosen[size_t(r)]) << what;
      backend->wait();
      for (int r = 0; r < kRows; ++r) penalised[size_t(r)].tokens.push_back(std::max(0, chosen[size_t(r)]));
      n_open += expect_the_samplers(peaks, backend->watched_scores(), get(*backend, logits), penalised, what + ", ahead");
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GE(n_changed, 6 * kRows / 4) << "penalties hardly change anything";
    EXPECT_LT(n_open, 2 * 6 * kRows / 4) << "draws are hardly ever decided";
  }
}

TEST(Penalties, AreTheHostsWhereAStepHasNoRoomForTheirCounts) {
  Step step({.max_tokens = 1, .max_seqs = 1, .max_logits = 1, .max_pages = 1, .max_counts = 5});
  Sequence few, many;
  few.tokens = {3, 4, 3, 5}, many.tokens = {3, 4, 5, 6};
  few.n_prompt = many.n_prompt = 4;
  few.params.repetition_penalty = many.params.repetition_penalty = 1.2f;
  EXPECT_TRUE(add_penalties(step, few, 4));
  EXPECT_FALSE(add_penalties(step, many, 4));
  EXPECT_EQ(step.n_counts(), 3);
  many.params.repetition_penalty = 1.0f;
  many.params.logit_bias = {{1, 1.0f}, {2, 1.0f}, {3, -INFINITY}};
  EXPECT_FALSE(add_penalties(step, many, 4)) << "nor for biases";
  EXPECT_EQ(step.n_counts(), 3);
  many.counts = {}, many.params.logit_bias.clear();
  many.params.repetition_penalty = 1.2f;
  many.params.penalty_last_n = 2;
  const auto penalties = add_penalties(step, many, 4);
  ASSERT_TRUE(penalties);
  EXPECT_EQ(penalties->first_count, 3);
  EXPECT_EQ(penalties->n_counts, 2);
}

TEST(Penalties, ChooseAsTheSamplerDoesOnTheHost) {
  expect_penalties_of_the_sampler([] { return make_ref_backend(); }, "ref");
  for (const CpuCase& c : cpu_cases()) expect_penalties_of_the_sampler([&] { return make_cpu(c); }, c.isa);
}

TEST(Penalties, ChooseAsTheSamplerDoesOnAGpu) {
  if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) GTEST_SKIP() << reason;
  for (const bool graphs : {true, false}) expect_penalties_of_the_sampler([&] { return make_cuda_backend({.graphs = graphs}); }, graphs ? "graphs" : "no graphs");
  expect_penalties_of_the_sampler([] { return make_cuda_backend({.blocking = true}); }, "op by op");
}

}  // namespace
}  // namespace ridge::conformance
