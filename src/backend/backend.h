// A Backend runs ops: `ref` in plain scalar f32 (the specification), `cpu`, `cuda`. Ledger and the other observers are Backends around a Backend.
//
// Life of a step: begin(step), run(op)..., end(). Between begin and end nothing is allocated and nothing throws; run() may return before the op is done,
// ops see each other's results in order, and after end() the host may read every tensor with download().
// Or, where peaks are watched: begin(step), run(op)..., submit(), and wait() later. Then one more step may be submitted meanwhile, whose tokens may be those that the
// first one is about to choose (step.h); the device goes from one to the other without the host.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "backend/op.h"
#include "backend/step.h"

namespace ridge {

// What a row of logits chose after its penalties (step.h): the largest, the first among equals, or the one that its Draw means; token -1: there is a NaN in it, or the draw is left open.
struct Peak { int32_t token; float logit; };
// The largest of a row of logits in descending order, the first among equals first; n_found -1: the row itself must be looked at (NaNs, more equals than there is room for).
struct TopLogits {
  static constexpr int kMost = 256;
  int32_t n_found;
  Peak top[kMost];
};

// What the model itself gives a token (step.h), before penalties: its logit, the log of the sum of exp over the row, and the largest of the row, where more than none are asked for.
struct Score {
  double log_sum;
  float logit;
  TopLogits top;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;                       // "ref", "cpu avx512, 2 threads"

  // Memory of the device for as long as the backend lives: 64-byte aligned, zeroed. Throws Error when there is none left.
  virtual std::byte* allocate(int64_t n_bytes) = 0;

  // Bring a weight to the device in the layout its kernels want (may alias the mapping: the file stays open as long as the model).
  // Throws Error naming the format and what would work when the backend has no kernel for it.
  virtual Weight prepare(const StoredWeight& stored, Arithmetic arithmetic) = 0;       // for Matmul
  virtual Weight prepare_table(const StoredWeight& stored) = 0;                        // for Embed
  virtual Tensor upload(const float* values, int64_t n) = 0;                           // a small f32 vector [1, n]: norms, biases, sinks

  // Whether run() knows the op. What a model asks for is checked once, before its first step.
  virtual bool supports(const Op&) const { return true; }

  virtual void begin(const Step& step) = 0;
  virtual void run(const Op& op) = 0;
  virtual void end() = 0;                                                              // submit, and wait for it; nothing else is under way
  virtual void submit() { end(); }                                                     // at most two steps are under way
  virtual void wait() {}                                                               // for the oldest step under way
  virtual bool works_alone() const { return false; }                                   // whether the host is free between submit() and wait()
  virtual bool needs_all_rows() const { return false; }                                // in this step every op has the step's rows: none may be left out that nobody reads
  virtual void download(void* host, const Tensor& tensor) = 0;                         // rows packed without stride

  // From now on the host can read after each step what each of its logit rows, rows of `logits`, chose, without a download: after end(), or after the wait()
  // for it and before the next. Draws by more than TopLogits::kMost of top_k are not made here. Null: not offered here.
  virtual const Peak* watch_peaks(const Tensor& logits) { return (void)logits, nullptr; }

  // Where peaks are watched: a step some of whose rows have masks chooses when these are there, between its submit() and its wait(), and no other is submitted meanwhile.
  // By logit row: token t may be chosen where bit t % 32 of word t / 32 is set; empty: all.
  using Masks = std::span<const std::span<const uint32_t>>;
  virtual void give_masks(Masks masks) { (void)masks; }

  // Where peaks are watched: the Scores of the rows that ask for one and chose, or named, a token; by row, read when and as long as peaks are. Null: nobody asked.
  virtual const Score* watched_scores() const { return nullptr; }

  // The largest of each of these rows of logits, after a step; valid until the next call. Null: not offered here.
  virtual const TopLogits* top_logits(const Tensor& rows) { return (void)rows, nullptr; }

  // Workspace and output tensors: f32 [rows, cols], rows 64-byte aligned.
  Tensor allocate_f32(int64_t rows, int64_t cols) {
    const int64_t stride = (cols * 4 + 63) / 64 * 64;
    return {allocate(rows * stride), FormatId::f32, rows, cols, stride};
  }
};

}  // namespace ridge
