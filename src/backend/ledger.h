// The byte ledger: a Backend around a Backend that counts, per kind of op, the bytes it must move and the time it took, and can write a trace in Chrome's
// format. Timing waits for each op (run then wait), so it is on only when asked for.
#pragma once
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace ridge {

struct LedgerEntry {
  int64_t n_ops = 0;
  Traffic traffic;
  double seconds = 0;
};

class Ledger : public Backend {
 public:
  enum class Mode { count, time };           // count: bytes only, adds no waiting; time: also seconds per op
  Ledger(Backend& inner, Mode mode) : inner_(inner), mode_(mode) {}

  std::string name() const override { return inner_.name(); }
  std::byte* allocate(int64_t n_bytes) override { return inner_.allocate(n_bytes); }
  Weight prepare(const StoredWeight& w, Arithmetic a) override { return inner_.prepare(w, a); }
  Weight prepare_table(const StoredWeight& w) override { return inner_.prepare_table(w); }
  Tensor upload(const float* values, int64_t n) override { return inner_.upload(values, n); }
  bool supports(const Op& op) const override { return inner_.supports(op); }
  void begin(const Step& step) override;
  void run(const Op& op) override;
  void end() override;
  void submit() override;
  void wait() override { inner_.wait(); }
  bool works_alone() const override { return mode_ == Mode::count && inner_.works_alone(); }
  void download(void* host, const Tensor& t) override { inner_.download(host, t); }
  const Peak* watch_peaks(const Tensor& logits) override { return inner_.watch_peaks(logits); }
  void give_masks(Masks masks) override { inner_.give_masks(masks); }
  const Score* watched_scores() const override { return inner_.watched_scores(); }
  const TopLogits* top_logits(const Tensor& rows) override { return inner_.top_logits(rows); }

  void reset();
  const std::map<std::string, LedgerEntry>& entries() const { return entries_; }
  Traffic total() const;
  int64_t n_steps() const { return n_steps_; }
  void keep_trace(bool keep) { keep_trace_ = keep; }
  void write_trace(const std::string& path) const;                     // Chrome's trace event format

 private:
  struct Event { std::string name; double start_us, duration_us; int64_t bytes; };
  Backend& inner_;
  Mode mode_;
  const Step* step_ = nullptr;
  std::map<std::string, LedgerEntry> entries_;
  std::vector<Event> events_;
  bool keep_trace_ = false;
  int64_t n_steps_ = 0;
  std::chrono::steady_clock::time_point origin_ = std::chrono::steady_clock::now();
};

}  // namespace ridge
