// Steps that are submitted before the one before them is done, with tokens that it is about to choose: the same numbers as step by step with known tokens, bit for bit.
#include <numeric>

#include "conformance/conformance.h"
#include "cuda/cuda_backend.h"

namespace ridge::conformance {
namespace {

constexpr int kVocab = 3001, kWidth = 64;

struct Chain {
  std::vector<std::vector<int32_t>> tokens;  // by step and row: what it chose
  std::vector<std::vector<float>> logits;    // and how large it was
  Matrix x;                                  // the rows of the last step's tokens
  int n_drawn = 0, n_open = 0;               // without penalties, and of them those that were left open
  bool operator==(const Chain& o) const { return tokens == o.tokens && logits == o.logits && x.values == o.x.values; }
};

// How row r of step i chooses; some take the largest.
Draw draw_of(size_t i, int r) {
  Rng rng(uint32_t(1000 * i) + uint32_t(r));
  if (rng() % 4 == 0) return {};
  return {.u = double(rng()) / 4294967296.0, .sharpness = 0.02 * double(1 + rng() % 30), .top_p = rng() % 2 ? 1.0f : 0.1f + 0.001f * float(rng() % 900), .min_p = rng() % 2 ? 0.0f : 0.001f * float(rng() % 300),
          .top_k = pick(rng, {0, 0, 1, 2, 7, 40, 255, 256})};
}

// What row r of step i has penalties for: a third of all tokens. Its own is one more, which the list has where it is known.
Penalties penalties_of(Step& step, size_t i, int r, int32_t own) {
  std::vector<TokenCount> counts;
  bool is_listed = own < 0;
  for (int32_t t = int32_t(i + size_t(r)) % 3; t < kVocab; t += 3) {
    TokenCount& count = counts.emplace_back(TokenCount{.token = t});
    count.is_recent = t % 2 == 0 || t == own;
    count.n_generated = uint32_t(t % 5 + (t == own));
    count.bias = t % 7 ? 0.0f : t % 2 ? 1.25f : -INFINITY;
    is_listed |= t == own;
  }
  if (!is_listed) counts.push_back({.token = own, .is_recent = 1, .n_generated = 1});
  const int first = step.add_counts(counts);
  return {.repetition = 1.3f, .presence = 0.5f, .frequency = 0.2f, .first_count = first, .n_counts = int(counts.size()), .counts_own = own < 0};
}

// What a Draw says of a row, step by step as it is written: the first and the last token that may be chosen, where sums are rounded in one way or the other.
std::pair<int, int> tokens_of(const float* row, const Draw& draw) {
  std::vector<int> order(kVocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
  const float largest = row[order[0]];
  const auto weight = [&](int token) { return std::exp((double(row[token]) - double(largest)) * draw.sharpness); };
  const auto sum_of = [&](const std::vector<int>& tokens) { return std::accumulate(tokens.begin(), tokens.end(), 0.0, [&](double sum, int token) { return sum + weight(token); }); };
  const auto chosen = [&](double slack) {
    std::vector<int> left = order;
    if (draw.top_k > 0) left.resize(size_t(draw.top_k));
    if (draw.top_p < 1.0f) {
      const double wanted = double(draw.top_p) * sum_of(left) * (1 + slack);
      double sum = 0;
      size_t n = 0;
      while (n < left.size() && sum < wanted) sum += weight(left[n++]);
      left.resize(n);
    }
    std::erase_if(left, [&](int token) { return weight(token) < double(draw.min_p) * (1 - slack); });
    if (draw.top_k == 0 && draw.top_p >= 1.0f) std::sort(left.begin(), left.end());
    double until = draw.u * sum_of(left) * (1 + slack);
    for (const int token : left)
      if ((until -= weight(token)) < 0) return token;
    return left.back();
  };
  return {chosen(-1e-12), chosen(1e-12)};
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
    if (ahead) return;                                                       // its logits are the next step's by now
    const Matrix rows = get(backend, logits.slice_rows(0, sizes[i]));
    for (int r = 0; r < sizes[i]; ++r) {
      const Draw& draw = steps[i]->draw_of()[size_t(r)];
      if (!draw.any() || draw.penalties.any() || std::isnan(rows.row(r)[0])) continue;
      chain.n_drawn++;
      const int32_t token = peaks[r].token;
      if (token < 0) {
        chain.n_open++;
        EXPECT_TRUE(draw.top_k == 0 && draw.top_p < 1.0f) << "step " << i << " row " << r << ": a draw that is not decided by what a device looks at";
        continue;
      }
      const auto [first, last] = tokens_of(rows.row(r), draw);
      EXPECT_TRUE(token == first || token == last) << "step " << i << " row " << r << ": " << token << " instead of " << first;
      EXPECT_EQ(peaks[r].logit, rows.row(r)[token]);
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
      if (draws && sizes[0] > 2) {
        EXPECT_GT(plain.n_drawn, 10);
        EXPECT_LT(plain.n_open, plain.n_drawn / 4);
      }
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
