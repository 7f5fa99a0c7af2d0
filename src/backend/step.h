// A Step: the ragged batch that one forward pass computes, as one contiguous, trivially copyable block of fixed capacity. The host fills it (sequence/batch),
// a device gets it with one copy (and one for counts, where there are any), ranks with one broadcast. Modules never look inside; the ops that follow the step do.
//
//   per token row   token, position, seq
//   per sequence    StepSeq: rows [first_row, first_row + n_rows), context length, rope row, page tables
//   then            logit rows, how a token is chosen from each, rope frequencies (one row per rope class in the batch), page tables (ragged, one run per sequence and
//                   group), counts of tokens (ragged, one run per logit row with penalties)
//
// A token of -1 - r is the one that logit row r of the step before chose: the largest (the first among equals), or as its Draw says; any one where that row holds NaNs, or its draw is left open.
// For backends whose peaks are watched (backend.h).
// Page tables are indexed by position / page_size; an entry of -1 is a page that was given back because no query can see it any more.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace ridge {

struct StepLimits {
  int max_tokens = 0, max_seqs = 0, max_logits = 0, max_pages = 0;   // max_pages: entries of all page tables of a step together
  int n_groups = 1;                                                  // KV groups
  int n_ropes = 0, n_freqs = 0;                                      // rope tables of the model, and the longest one's frequencies
  int max_rope_rows = 1;
  int max_counts = 0;                                                // tokens that penalties look at or that are biased, of all logit rows together
};

inline constexpr int kMaxKvGroups = 8;

struct StepSeq {
  int32_t slot;                              // identity across steps
  int32_t first_row, n_rows;
  int32_t n_context;                         // positions [0, n_context) are in KV once this step has run
  int32_t n_known;                           // tokens of the sequence, those to come included
  int32_t rope_row;
  int32_t first_page[kMaxKvGroups];          // index into pages(), by group
};

// A token that penalties look at: how often it was generated, whether the repetition penalty sees it, and what the request adds to its logit.
struct TokenCount {
  int32_t token;
  uint32_t is_recent : 1, n_generated : 31;
  float bias = 0;
};

// What is done to a row's logits, token by token of a list without doubles, before one is chosen; whoever looks at the row later finds it as it was.
struct Penalties {
  float repetition = 1, presence = 0, frequency = 0;
  int32_t first_count = 0, n_counts = 0;     // its list: a run of counts()
  int32_t counts_own = 0;                    // 1: the row's own token, recent and generated, is one more than the list says; the host may not know it yet
  constexpr bool any() const { return counts_tokens() || n_counts > 0; }
  constexpr bool counts_tokens() const { return repetition != 1.0f || presence != 0.0f || frequency != 0.0f; }      // else it may list biases
};

// After its bias a positive logit of a recent token is divided by the repetition penalty, another multiplied; then presence and frequency are taken off one that was generated.
float penalised(float logit, const Penalties& penalties, bool is_recent, int n_generated);

// How a token is drawn from a row of logits after its penalties: of the top_k largest (0: all), weighing exp((logit - largest) * sharpness), those likeliest that reach top_p of the
// weight and that weigh min_p times the largest, the one in which u times their weight lies, likeliest first, or in the order of tokens where neither top_k nor top_p cuts. The same
// as the sampler's (sample/sampler.h), or left open (draw.h). Sharpness 0: none is drawn, it is the largest.
struct Draw {
  double u = 0, sharpness = 0;
  float top_p = 1, min_p = 0;
  int32_t top_k = 0;
  Penalties penalties;
  int32_t n_logprobs = -1;                   // 0 or more: the row has a Score (backend.h), with as many of the likeliest as this, TopLogits::kMost at most
  int32_t scored = -1;                       // of this token; -1: of the one that it chooses
  int32_t masked = 0;                        // 1: it chooses among the tokens of a mask, which comes later (Backend::give_masks)
  constexpr bool any() const { return sharpness > 0.0; }
  constexpr bool scores() const { return n_logprobs >= 0; }
  constexpr bool in_order_of_tokens() const { return top_k == 0 && top_p >= 1.0f; }
};

// The arrays of a Step as pointers into a copy of its block: what kernels on another device get.
struct StepView {
  const int32_t *tokens, *positions, *seq_of, *logit_rows, *pages;
  const StepSeq* seqs;
  const float* rope;                         // [row][rope][n_freqs + 1]
  int n_ropes, n_freqs;
};

class Step {
 public:
  explicit Step(const StepLimits& limits);

  void clear();                              // no tokens, no sequences
  const StepLimits& limits() const { return limits_; }
  int n_tokens() const { return head().n_tokens; }
  int n_seqs() const { return head().n_seqs; }
  int n_logits() const { return head().n_logits; }
  int n_pages() const { return head().n_pages; }
  int n_counts() const { return head().n_counts; }
  int n_rope_rows() const { return head().n_rope_rows; }
  int page_size() const { return head().page_size; }
  void set_page_size(int n) { head().page_size = n; }

  // Appends; the caller stays within the limits (CHECKed).
  int add_seq(const StepSeq& seq);                                    // returns its index
  void add_token(int32_t token, int32_t position, int32_t seq, bool wants_logits);
  int add_pages(std::span<const int32_t> table);                      // returns the index of its first entry
  int add_counts(std::span<const TokenCount> counts);                 // the same, for penalties
  void set_token(int row, int32_t token);
  void set_draw(int logit_row, const Draw& draw);                     // what it chooses for the step after it; without: the largest
  int add_rope_row();                                                 // returns its index; fill with rope_freqs()

  std::span<const int32_t> tokens() const { return {at<int32_t>(tokens_), size_t(n_tokens())}; }
  std::span<const int32_t> positions() const { return {at<int32_t>(positions_), size_t(n_tokens())}; }
  std::span<const int32_t> seq_of() const { return {at<int32_t>(seq_of_), size_t(n_tokens())}; }
  std::span<const StepSeq> seqs() const { return {at<StepSeq>(seqs_), size_t(n_seqs())}; }
  std::span<const int32_t> logit_rows() const { return {at<int32_t>(logit_rows_), size_t(n_logits())}; }
  int n_logits_before(int row) const;                                 // logit rows among the rows before this one
  int last_logit_row(const StepSeq& seq) const { return n_logits_before(seq.first_row + seq.n_rows) - 1; }      // of a sequence that has one
  bool draws() const { return head().draws; }                         // some row is drawn from
  bool penalises() const { return head().penalises; }                 // some row has penalties
  bool scores() const { return head().scores; }                       // some row has a Score
  bool waits() const { return head().waits; }                         // some row has a mask
  std::span<const Draw> draw_of() const { return {at<Draw>(draws_), size_t(n_logits())}; }        // by logit row
  const int32_t* pages() const { return at<int32_t>(pages_); }
  std::span<const TokenCount> counts() const { return {at<TokenCount>(counts_), size_t(n_counts())}; }
  // Inverse frequencies of rope `rope` for a class, then the factor on cos and sin: [n_freqs + 1].
  float* rope_freqs(int rope, int row) { return at<float>(rope_) + (int64_t(row) * limits_.n_ropes + rope) * (limits_.n_freqs + 1); }
  const float* rope_freqs(int rope, int row) const { return const_cast<Step*>(this)->rope_freqs(rope, row); }

  std::span<const std::byte> block() const { return block_; }
  // Its beginning, which holds all that the step has but counts(): page tables are last, and for many long sequences there is room for millions of entries.
  std::span<const std::byte> used() const { return block().first(size_t(pages_) + 4 * size_t(n_pages())); }
  StepView view_at(const std::byte* base) const;
  // In a copy; apart, for the few kernels that choose.
  const Draw* draws_at(const std::byte* base) const { return reinterpret_cast<const Draw*>(base + draws_); }
  const TokenCount* counts_at(const std::byte* base) const { return reinterpret_cast<const TokenCount*>(base + counts_); }

 private:
  struct Head { int32_t n_tokens, n_seqs, n_logits, n_pages, n_rope_rows, page_size, draws, n_counts, penalises, scores, waits; };
  Head& head() { return *reinterpret_cast<Head*>(block_.data()); }
  const Head& head() const { return *reinterpret_cast<const Head*>(block_.data()); }
  template <class T> T* at(int64_t offset) { return reinterpret_cast<T*>(block_.data() + offset); }
  template <class T> const T* at(int64_t offset) const { return reinterpret_cast<const T*>(block_.data() + offset); }

  StepLimits limits_;
  int64_t tokens_, positions_, seq_of_, seqs_, logit_rows_, draws_, pages_, counts_, rope_;    // offsets into the block
  std::vector<std::byte> block_;
};

}  // namespace ridge
