// The kernels that choose a step's tokens (penalties and biases, the largest logit, draws) and score them, run on the host: they choose what the sampler does, and leave rows as they were.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "cuda/kernels/kernels.h"
#include "sample/random_logits.h"
#include "sample/sampler.h"
#include "sequence/batch.h"

namespace ridge::cuda {
namespace {

// Rows of logits and the sequences whose next tokens are chosen from them.
class Choosing {
 public:
  Choosing(std::vector<std::vector<float>> rows, std::vector<Sequence> sequences)
      : n_vocab_(int(rows[0].size())), sequences_(std::move(sequences)), step_({.max_tokens = int(rows.size()), .max_seqs = 1, .max_logits = int(rows.size()), .max_pages = 1, .max_counts = 100'000}) {
    const int n = int(rows.size());
    for (const auto& row : rows) logits_.insert(logits_.end(), row.begin(), row.end());
    step_.clear();
    step_.set_page_size(64);
    step_.add_seq({.slot = 0, .first_row = 0, .n_rows = n, .n_context = n, .rope_row = 0, .first_page = {}});
    for (int r = 0; r < n; ++r) step_.add_token(sequences_[size_t(r)].tokens.back(), r, 0, true);
    for (int r = 0; r < n; ++r) {
      Sequence& s = sequences_[size_t(r)];
      const SamplingParams& p = s.params;
      Draw draw;
      if (!p.greedy()) draw = {.u = uniform(s.seed, uint64_t(s.n_generated())), .sharpness = 1.0 / p.temperature, .top_p = p.top_p, .min_p = p.min_p, .top_k = p.top_k};
      draw.penalties = add_penalties(step_, s, s.n_known()).value();
      draw.n_logprobs = p.n_logprobs;
      if (s.n_prompt_logprobs >= 0) draw = {.n_logprobs = s.n_prompt_logprobs, .scored = s.tokens.front()};
      step_.set_draw(r, draw);
    }
  }

  void mask(int row, std::vector<uint32_t> allowed) {
    const size_t n_words = size_t(n_vocab_ + 31) / 32;
    masks_.resize(sequences_.size() * n_words, 0xdeadbeefu);
    std::copy(allowed.begin(), allowed.end(), masks_.begin() + int64_t(row) * int64_t(n_words));
    allowed_[row] = std::move(allowed);
    Draw draw = step_.draw_of()[size_t(row)];
    draw.masked = 1;
    step_.set_draw(row, draw);
  }

  // As cuda_backend.cpp does it.
  std::vector<Peak> choose() {
    const int n = int(sequences_.size());
    const Tensor rows{reinterpret_cast<std::byte*>(logits_.data()), FormatId::f32, n, n_vocab_, n_vocab_ * 4};
    std::vector<float> unpenalised(size_t(n + step_.n_counts()));
    std::vector<Peak> peaks(2 * size_t(n), Peak{-7, 0});
    std::vector<int32_t> tokens(2 * size_t(n), -7);
    std::vector<unsigned long long> state(2 * size_t(n));
    std::vector<double> scratch(size_t(row_scratch_bytes(rows)) / 8);
    scores.assign(2 * size_t(n), Score{.log_sum = -7, .logit = -7, .top = {}});
    const int32_t turn = 1;
    const std::byte* const block = step_.block().data();
    Launch l{};
    l.step = step_.view_at(block);
    l.choices = {.turn = &turn, .tokens = tokens.data(), .peaks = peaks.data(), .scores = scores.data(), .draws = step_.draws_at(block), .counts = step_.counts_at(block), .masks = masks_.empty() ? nullptr : masks_.data(), .unpenalised = unpenalised.data(), .rows = n};
    l.n_sms = 132;
    const std::vector<float> before = logits_;
    penalise(rows, l);
    find_peaks(rows, reinterpret_cast<std::byte*>(state.data()), l);
    draw(rows, reinterpret_cast<std::byte*>(scratch.data()), l);
    unpenalise(rows, l);
    score(rows, reinterpret_cast<std::byte*>(scratch.data()), l);
    EXPECT_EQ(std::memcmp(before.data(), logits_.data(), 4 * before.size()), 0) << "rows are not as they were";
    for (const unsigned long long word : state) EXPECT_EQ(word, 0u);
    std::vector<Peak> chosen(peaks.begin() + n, peaks.end());
    for (int r = 0; r < n; ++r) {
      EXPECT_EQ(tokens[size_t(n + r)], chosen[size_t(r)].token) << "the next step's token";
      EXPECT_TRUE(peaks[size_t(r)].token == -7 && tokens[size_t(r)] == -7 && scores[size_t(r)].log_sum == -7) << "the other turn's";
    }
    scores.erase(scores.begin(), scores.begin() + n);
    return chosen;
  }

  std::vector<float> row_of(int r) const { return {logits_.begin() + int64_t{r} * n_vocab_, logits_.begin() + int64_t{r + 1} * n_vocab_}; }
  Sampled sampled(int r) const {
    const Sequence& s = sequences_[size_t(r)];
    std::vector<float> row = row_of(r);
    const auto allowed = allowed_.find(r);
    return Sampler(n_vocab_).sample(row, {.params = s.params, .history = s.tokens, .n_prompt = s.n_prompt, .seed = s.seed, .counter = uint64_t(s.n_generated()), .allowed = allowed == allowed_.end() ? std::span<const uint32_t>{} : allowed->second});
  }

  std::vector<Score> scores;                 // by row, after choose()

 private:
  int n_vocab_;
  std::vector<float> logits_;
  std::vector<Sequence> sequences_;
  std::vector<uint32_t> masks_;
  std::map<int, std::vector<uint32_t>> allowed_;
  Step step_;
};

Sequence sequence_of(SamplingParams params, uint64_t seed, int n_vocab) {
  Sequence s;
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (int i = 0; i < 40; ++i) s.tokens.push_back(int32_t(random() % uint32_t(n_vocab)));
  s.n_prompt = 10, s.params = std::move(params), s.seed = seed;
  return s;
}

// Every way to draw, over flat rows and steep ones.
TEST(Choosing, IsAsTheSamplerDoesIt) {
  const std::vector<SamplingParams> ways = {
      {.temperature = 0},
      {.temperature = 1},
      {.temperature = 0.7f},
      {.temperature = 1, .min_p = 0.05f},
      {.temperature = 0.8f, .top_p = 0.9f},
      {.temperature = 0.8f, .top_p = 0.95f, .min_p = 0.01f},
      {.temperature = 1, .top_k = 40},
      {.temperature = 1.3f, .top_k = 256, .top_p = 0.8f},
      {.temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .min_p = 0.1f},
      {.temperature = 1, .repetition_penalty = 1.3f},
      {.temperature = 1, .top_p = 0.9f, .presence_penalty = 0.5f, .frequency_penalty = 0.3f},
      {.temperature = 0, .repetition_penalty = 1.2f, .presence_penalty = -0.5f},
      {.temperature = 0, .logit_bias = {{0, 3.0f}, {17, 2.0f}, {199, -INFINITY}}},
      {.temperature = 1, .top_k = 40, .repetition_penalty = 1.3f, .logit_bias = {{1, -100.0f}, {2, 100.0f}, {199, 4.0f}}},
      {.temperature = 1, .logit_bias = {{3, 5.0f}, {4, 5.0f}, {5, -INFINITY}}},
  };
  int n_open = 0, n_rows = 0;
  for (const auto& [n_vocab, n_rounds] : {std::pair{200, 6}, {2048, 4}, {5003, 4}, {151'936, 1}})
    for (int round = 0; round < n_rounds; ++round) {
      std::vector<std::vector<float>> rows;
      std::vector<Sequence> sequences;
      for (size_t i = 0; i < ways.size(); ++i) {
        const uint64_t seed = 100 * uint64_t(round) + i + uint64_t(n_vocab);
        rows.push_back(random_logits(n_vocab, uint32_t(seed), round % 2 ? 1.0f : 4.0f));
        sequences.push_back(sequence_of(ways[i], seed, n_vocab));
      }
      Choosing choosing(rows, std::move(sequences));
      const std::vector<Peak> chosen = choosing.choose();
      for (size_t i = 0; i < ways.size(); ++i) {
        n_rows++;
        if (chosen[i].token < 0 && ways[i].top_k == 0 && ways[i].top_p < 1.0f) {
          n_open++;
          continue;
        }
        EXPECT_EQ(chosen[i].token, choosing.sampled(int(i)).token) << n_vocab << " tokens, round " << round << ", way " << i;
      }
    }
  EXPECT_LT(n_open, n_rows / 10);
}

// Each token as often as its weight says: what is drawn is not only the sampler's but right.
TEST(Choosing, DrawsByWeight) {
  constexpr int kVocab = 300, kDraws = 1600;
  std::vector<float> row(kVocab, -20.0f);
  row[7] = std::log(1.0f), row[100] = std::log(2.0f), row[299] = std::log(5.0f);
  std::vector<int> n(kVocab);
  for (int first = 0; first < kDraws; first += 400) {
    std::vector<Sequence> sequences;
    for (int i = 0; i < 400; ++i) sequences.push_back(sequence_of({.temperature = 1, .top_p = i % 10 ? 1.0f : 0.999f}, uint64_t(first + i), kVocab));
    for (const Peak& peak : Choosing(std::vector<std::vector<float>>(400, row), std::move(sequences)).choose())
      if (peak.token >= 0) n[size_t(peak.token)]++;
  }
  EXPECT_NEAR(n[7], kDraws / 8, 60);
  EXPECT_NEAR(n[100], kDraws / 4, 78);
  EXPECT_NEAR(n[299], kDraws * 5 / 8, 87);
}

TEST(Choosing, LeavesOpenWhatIsNotANumber) {
  const int n_vocab = 3000;
  std::vector<std::vector<float>> rows(8, random_logits(n_vocab, 3));
  rows[0][17] = NAN, rows[1][2999] = NAN;
  rows[2][5] = INFINITY, rows[3][6] = INFINITY;
  std::fill(rows[4].begin(), rows[4].end(), -INFINITY);
  std::fill(rows[5].begin(), rows[5].end(), -INFINITY);
  for (int i = 0; i < n_vocab; i += 2) rows[6][size_t(i)] = rows[7][size_t(i)] = -INFINITY;
  std::vector<Sequence> sequences;
  for (uint64_t r = 0; r < 8; ++r) sequences.push_back(sequence_of({.temperature = 1, .top_k = r % 2 ? 30 : 0}, r, n_vocab));
  Choosing choosing(rows, std::move(sequences));
  const std::vector<Peak> chosen = choosing.choose();
  for (size_t r = 0; r < 6; ++r) EXPECT_EQ(chosen[r].token, -1) << r;
  for (size_t r = 6; r < 8; ++r) EXPECT_EQ(chosen[r].token, choosing.sampled(int(r)).token) << r;
}

// All tokens alike, more than there is room for in a list: a draw from them all is none the worse for it.
TEST(Choosing, AFlatRow) {
  std::vector<Sequence> sequences;
  for (uint64_t r = 0; r < 6; ++r) sequences.push_back(sequence_of({.temperature = 1, .top_k = r < 3 ? 0 : 50}, r, 9000));
  Choosing choosing(std::vector<std::vector<float>>(6, std::vector<float>(9000, 1.5f)), std::move(sequences));
  const std::vector<Peak> chosen = choosing.choose();
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(chosen[r].token, choosing.sampled(int(r)).token) << r;
  for (size_t r = 3; r < 6; ++r) EXPECT_EQ(chosen[r].token, -1) << r;
}

// Only what a mask allows is chosen, in the model's own proportions; scores are of all.
TEST(Choosing, AmongWhatMasksAllow) {
  int n_open = 0;
  for (const int n_vocab : {1000, 5003}) {
    std::vector<std::vector<float>> rows;
    std::vector<Sequence> sequences;
    for (uint64_t r = 0; r < 15; ++r) {
      rows.push_back(random_logits(n_vocab, uint32_t(r), 3.0f));
      const SamplingParams ways[] = {{.temperature = 0}, {.temperature = 1}, {.temperature = 1, .top_k = 40}, {.temperature = 0.7f, .top_p = 0.9f, .n_logprobs = 3}, {.temperature = 1, .min_p = 0.1f, .repetition_penalty = 1.3f}};
      sequences.push_back(sequence_of(ways[r % 5], r, n_vocab));
    }
    Choosing choosing(rows, std::move(sequences));
    for (int r = 0; r < 14; ++r) {
      std::vector<uint32_t> allowed(size_t(n_vocab + 31) / 32);
      if (r < 5) std::fill(allowed.begin(), allowed.end(), ~0u), allowed[3] = 0;        // nearly all
      else if (r < 10) allowed[5] = 0x00010001u, allowed.back() = 1;                    // three
      else allowed[9] = 0x80000000u;                                                    // one
      if (r == 13) std::fill(allowed.begin(), allowed.end(), 0u);                       // none
      choosing.mask(r, std::move(allowed));
    }
    const std::vector<Peak> chosen = choosing.choose();
    for (int r = 0; r < 15; ++r) {
      if (r == 13) {
        EXPECT_FALSE(chosen[size_t(r)].token >= 0 && std::isfinite(chosen[size_t(r)].logit));
        continue;
      }
      const Sampled sampled = choosing.sampled(r);
      if (chosen[size_t(r)].token < 0 && r % 5 == 3) {
        n_open++;
        continue;
      }
      EXPECT_EQ(chosen[size_t(r)].token, sampled.token) << n_vocab << " tokens, row " << r;
      if (r % 5 == 3) {
        EXPECT_NEAR(score_of(choosing.scores[size_t(r)], sampled.token, 3).value().logprob, sampled.logprob, 1e-6);
      }
    }
  }
  EXPECT_LT(n_open, 2);
}

// Scores are those of the row as the model made it, whatever penalties did to it meanwhile, of the token that was chosen or of one that was named.
TEST(Scores, AreTheHosts) {
  for (const int n_vocab : {300, 5003}) {
    std::vector<std::vector<float>> rows;
    std::vector<Sequence> sequences;
    for (uint64_t r = 0; r < 8; ++r) {
      rows.push_back(random_logits(n_vocab, uint32_t(r), 3.0f));
      sequences.push_back(sequence_of({.temperature = r % 2 ? 1.0f : 0.0f, .repetition_penalty = r % 3 ? 1.0f : 1.5f, .n_logprobs = r == 5 ? -1 : int(r % 4) * 7}, r, n_vocab));
      if (r >= 6) sequences.back().n_prompt_logprobs = r == 6 ? 0 : 256;
    }
    const std::vector<Sequence> kept = sequences;
    Choosing choosing(rows, std::move(sequences));
    const std::vector<Peak> chosen = choosing.choose();
    for (size_t r = 0; r < 8; ++r) {
      if (r == 5) {
        EXPECT_EQ(choosing.scores[r].log_sum, -7) << "nobody asked";
        continue;
      }
      const int n = r >= 6 ? kept[r].n_prompt_logprobs : kept[r].params.n_logprobs;
      const int32_t token = r >= 6 ? kept[r].tokens.front() : chosen[r].token;
      const Sampled expected = score_of(rows[r], token, n);
      const std::optional<Sampled> got = score_of(choosing.scores[r], token, n);
      ASSERT_TRUE(got) << r;
      EXPECT_EQ(got->token, expected.token);
      EXPECT_NEAR(got->logprob, expected.logprob, 1e-6) << r;
      ASSERT_EQ(got->top.size(), expected.top.size());
      for (size_t i = 0; i < expected.top.size(); ++i) {
        EXPECT_EQ(got->top[i].token, expected.top[i].token) << r << ", place " << i;
        EXPECT_NEAR(got->top[i].logprob, expected.top[i].logprob, 1e-6);
      }
    }
  }
}

TEST(LargestLogits, ComeInTheirOrder) {
  for (const int n_vocab : {1, 100, 2048, 2049, 3000, 40'000, 140'001, 151'936, 1'200'003}) {
    std::vector<float> row = random_logits(n_vocab, 5);
    for (int i = 0; i < n_vocab; i += 3) row[size_t(i)] = float(int(row[size_t(i)] * 100)) / 100;
    row.back() = 100;                                                          // in a group that may not be whole
    TopLogits top{};
    Launch l{};
    const Tensor rows{reinterpret_cast<std::byte*>(row.data()), FormatId::f32, 1, n_vocab, n_vocab * 4};
    std::vector<double> scratch(size_t(row_scratch_bytes(rows)) / 8);
    find_top(&top, rows, reinterpret_cast<std::byte*>(scratch.data()), l);
    std::vector<TokenLogprob> expected;
    select_top_k(expected, row, TopLogits::kMost);
    ASSERT_EQ(top.n_found, int(expected.size()));
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(top.top[i].token, expected[i].token) << n_vocab << " tokens, place " << i;
      ASSERT_EQ(top.top[i].logit, expected[i].logprob);
    }
  }
}

}  // namespace
}  // namespace ridge::cuda
