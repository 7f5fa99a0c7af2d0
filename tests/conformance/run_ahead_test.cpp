// Steps that are submitted before the one before them is done, with tokens that it is about to choose: the same numbers as step by step with known tokens, bit for bit.
#include "conformance/conformance.h"
#include "cuda/cuda_backend.h"

namespace ridge::conformance {
namespace {

constexpr int kVocab = 3001, kWidth = 64;

struct Chain {
  std::vector<std::vector<int32_t>> tokens;  // by step and row: what it chose
  std::vector<std::vector<float>> logits;    // and how large it was
  Matrix x;                                  // the rows of the last step's tokens
  bool operator==(const Chain& o) const { return tokens == o.tokens && logits == o.logits && x.values == o.x.values; }
};

// How row r of step i chooses; some take the largest.
Draw draw_of(size_t i, int r) {
  Rng rng(uint32_t(1000 * i) + uint32_t(r));
  if (rng() % 4 == 0) return {};
  return {.u = double(rng()) / 4294967296.0, .sharpness = 0.02 * double(1 + rng() % 30), .top_p = rng() % 2 ? 1.0f : 0.1f + 0.001f * float(rng() % 900), .min_p = rng() % 2 ? 0.0f : 0.001f * float(rng() % 300),
          .top_k = pick(rng, {1, 2, 7, 40, 255, 256})};
}

// What row r of step i has penalties for: a third of all tokens. Its own is one more, which the list has where it is known.
Penalties penalties_of(Step& step, size_t i, int r, int32_t own) {
  std::vector<TokenCount> counts;
  bool is_listed = own < 0;
  for (int32_t t = int32_t(i + size_t(r)) % 3; t < kVocab; t += 3) {
    TokenCount& count = counts.emplace_back(TokenCount{.token = t});
    count.is_recent = t % 2 == 0 || t == own;
    count.n_generated = uint32_t(t % 5 + (t == own));
    is_listed |= t == own;
  }
  if (!is_listed) counts.push_back({.token = own, .is_recent = 1, .n_generated = 1});
  const int first = step.add_counts(counts);
  return {.repetition = 1.3f, .presence = 0.5f, .frequency = 0.2f, .first_count = first, .n_counts = int(counts.size()), .counts_own = own < 0};
}

// What a Draw says, of the largest logits in order: the first and the last that may be chosen, where sums are rounded in one way or the other.
std::pair<int, int> places_of(const TopLogits& tops, const Draw& draw) {
  const int k = std::min(draw.top_k, tops.n_found);
  const auto place = [&](double slack) {
    std::vector<double> up_to;
    double sum = 0;
    const auto weight = [&](int i) { return std::exp((double(tops.top[i].logit) - double(tops.top[0].logit)) * draw.sharpness); };
    for (int i = 0; i < k; ++i) up_to.push_back(sum += weight(i));
    int n = 1;
    while (n < k && (draw.top_p >= 1.0f || up_to[size_t(n - 1)] < double(draw.top_p) * sum * (1 + slack)) && weight(n) >= double(draw.min_p) * (1 - slack)) n++;
    int i = 0;
    while (i < n - 1 && up_to[size_t(i)] <= draw.u * up_to[size_t(n - 1)] * (1 + slack)) i++;
    return i;
  };
  return {place(-1e-12), place(1e-12)};
}

// Row r of a step has the token that row r + 1 of the step before chose. Every seventh step has one op more, which changes nothing: a captured graph does not serve it.
// sizes: rows of each step, from which those of the next come.
Chain run_chain(Backend& backend, const OwnedWeight& table_of, const OwnedWeight& head_of, const std::vector<int>& sizes, bool ahead, bool draws, bool penalises) {
  const int most = *std::max_element(sizes.begin(), sizes.end());
  const Weight table = backend.prepare_table(table_of.stored), head = backend.prepare(head_of.stored, kFloat);
  const Tensor x = backend.allocate_f32(most, kWidth), logits = backend.allocate_f32(most, kVocab);
  const Peak* const peaks = backend.watch_peaks(logits);
  Chain chain;
  EXPECT_NE(peaks, nullptr);
  if (!peaks) return chain;
  std::vector<std::unique_ptr<Step>> steps;                                  // as long as they are under way
  const auto submit = [&](size_t i) {
    const int n = sizes[i], n_before = i > 0 ? sizes[i - 1] : 0;
    Step& step = *steps.emplace_back(std::make_unique<Step>(StepLimits{.max_tokens = most, .max_seqs = 1, .max_logits = most, .max_pages = 1, .max_counts = most * 1002}));
    step.clear();
    step.set_page_size(64);
    step.add_seq({.slot = 0, .first_row = 0, .n_rows = n, .n_context = n, .rope_row = 0, .first_page = {}});
    for (int r = 0; r < n; ++r) {
      const int from = i > 0 ? (r + 1) % n_before : 0;
      step.add_token(i == 0 ? 7 * r : ahead ? -1 - from : std::max(0, chain.tokens[i - 1][size_t(from)]), r, 0, true);
    }
    for (int r = 0; r < n; ++r) {
      Draw draw = draws ? draw_of(i, r) : Draw{};
      if (penalises && r % 4 != 1) draw.penalties = penalties_of(step, i, r, step.tokens()[size_t(r)]);
      step.set_draw(r, draw);
    }
    backend.begin(step);
    backend.run(Embed{.out = x.slice_rows(0, n), .table = &table});
    if (i % 7 == 6) backend.run(ScaleCap{.x = x.slice_rows(0, n), .scale = 1.0f});
    backend.run(Matmul{.out = {logits.slice_rows(0, n)}, .x = x.slice_rows(0, n), .w = {&head}});
    backend.submit();
  };
  const auto wait = [&](size_t i) {
    backend.wait();
    auto& tokens = chain.tokens.emplace_back();
    auto& values = chain.logits.emplace_back();
    for (int r = 0; r < sizes[i]; ++r) tokens.push_back(peaks[r].token), values.push_back(peaks[r].logit);
    const TopLogits* const tops = backend.watched_tops();
    ASSERT_EQ(tops != nullptr, steps[i]->draws());
    for (int r = 0; tops && r < sizes[i]; ++r) {
      if (peaks[r].token < 0) {
        EXPECT_EQ(tops[r].n_found, -1);
        continue;
      }
      ASSERT_EQ(tops[r].n_found, TopLogits::kMost);
      for (int j = 1; j < TopLogits::kMost; ++j)
        ASSERT_TRUE(tops[r].top[j].logit < tops[r].top[j - 1].logit || (tops[r].top[j].logit == tops[r].top[j - 1].logit && tops[r].top[j].token > tops[r].top[j - 1].token));
      const Draw draw = draw_of(i, r);
      const auto [first, last] = draw.top_k > 0 ? places_of(tops[r], draw) : std::pair{0, 0};
      bool is_there = false;
      for (int j = first; j <= last; ++j) is_there |= tops[r].top[j].token == peaks[r].token && tops[r].top[j].logit == peaks[r].logit;
      EXPECT_TRUE(is_there) << "step " << i << " row " << r << ": places " << first << " to " << last;
    }
  };
  for (size_t i = 0; i < sizes.size(); ++i) {
    submit(i);
    if (!ahead) wait(i);
    else if (i > 0) wait(i - 1);
  }
  if (ahead) wait(sizes.size() - 1);
  chain.x = get(backend, x.slice_rows(0, sizes.back()));
  return chain;
}

void expect_the_same_ahead(const std::function<std::unique_ptr<Backend>()>& make) {
  Rng rng(31);
  Matrix values = random_matrix(rng, kVocab, kWidth);
  values.row(14)[3] = NAN;                                                   // the third row's first token: what follows it is anybody's guess, and nobody else's
  const auto table = encode(values, FormatId::f32), head = encode(random_matrix(rng, kVocab, kWidth), FormatId::bf16);
  for (const auto& sizes : {std::vector<int>(20, 1), std::vector<int>(20, 5), std::vector<int>{40, 40, 3, 3, 3, 3, 3, 3, 3, 3, 9, 9, 9, 1, 1, 1, 1}}) {
    for (const auto& [draws, penalises] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
      const Chain plain = run_chain(*make(), *table, *head, sizes, false, draws, penalises), ahead = run_chain(*make(), *table, *head, sizes, true, draws, penalises);
      ASSERT_EQ(ahead.tokens, plain.tokens);
      EXPECT_TRUE(ahead == plain);
      if (sizes[0] > 2) {
        EXPECT_EQ(plain.tokens[0][2], -1);
      }
      const std::vector<int32_t>& last = plain.tokens.back();
      EXPECT_GT(*std::max_element(last.begin(), last.end()), 0);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(RunningAhead, IsTheSameAsStepByStepOnTheHost) {
  expect_the_same_ahead([] { return make_ref_backend(); });
  for (const CpuCase& c : cpu_cases()) expect_the_same_ahead([&] { return make_cpu(c); });
}

TEST(RunningAhead, IsTheSameAsStepByStepOnAGpu) {
  if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) GTEST_SKIP() << reason;
  for (const bool graphs : {true, false})
    for (const bool check_f32 : {false, true}) expect_the_same_ahead([&] { return make_cuda_backend({.check_f32 = check_f32, .graphs = graphs}); });
}

// What others do between steps finds everything done, and disturbs nothing.
TEST(RunningAhead, ALookAtATensorWaitsForTheStepsUnderWayOnAGpu) {
  if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) GTEST_SKIP() << reason;
  Rng rng(32);
  const Matrix values = random_matrix(rng, 3000, 4096);                      // more than goes through pinned memory
  auto backend = make_cuda_backend({});
  const Tensor x = put(*backend, values);
  backend->watch_peaks(backend->allocate_f32(1, 8));
  Step step({.max_tokens = 3000, .max_seqs = 1, .max_logits = 1, .max_pages = 1});
  step.clear();
  step.add_seq({.slot = 0, .first_row = 0, .n_rows = 3000, .n_context = 3000, .rope_row = 0, .first_page = {}});
  for (int t = 0; t < 3000; ++t) step.add_token(0, t, 0, false);
  Matrix scaled = values;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 2; ++i) {
      backend->begin(step);
      for (int j = 0; j < 8; ++j) backend->run(ScaleCap{.x = x, .scale = j % 2 ? 0.5f : 2.0f});
      backend->run(ScaleCap{.x = x, .scale = 2.0f});
      backend->submit();
    }
    for (float& v : scaled.values) v *= 4.0f;
    expect_same(get(*backend, x), scaled, "two steps under way");
    backend->wait();
    backend->wait();
  }
}

}  // namespace
}  // namespace ridge::conformance
