// Masks of token filters, made on a thread of its own while the forward pass that gives the logits runs. The engine's thread takes a share of what is left when it
// comes back, so that a helper that the system did not wake in time delays nobody.
//
//   ticket_   round << 32 | masks not yet taken: one word, so that whoever takes one knows that it is of this round
#pragma once
#include <atomic>
#include <exception>
#include <span>
#include <thread>
#include <vector>

#include "text/token_filter.h"

namespace ridge {

class MaskWorker {
 public:
  explicit MaskWorker(int n_vocab) : n_words_((size_t(n_vocab) + 31) / 32) {}
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  void clear() { jobs_.clear(); }            // before a step
  void add(TokenFilter* filter) { jobs_.push_back({filter}); }
  void begin();                              // starts on what was added
  void wait();                               // until all of it is done
  // The mask of a filter that was added, found soonest in the order of adding; empty when everything is allowed. Throws what the filter threw.
  std::span<const uint32_t> mask_of(const TokenFilter* filter);

 private:
  struct Job {
    TokenFilter* filter;
    bool restricts = false;
    std::exception_ptr thrown = nullptr;
  };
  bool run_one();                            // false: none is left
  void work();
  std::span<uint32_t> words_of(size_t job) { return std::span(words_).subspan(job * n_words_, n_words_); }

  size_t n_words_, next_ = 0;
  std::vector<Job> jobs_;
  std::vector<uint32_t> words_;              // [jobs][n_words]
  std::atomic<uint64_t> ticket_ = 0;
  std::atomic<int> n_done_ = 0;
  std::atomic<bool> quit_ = false;
  std::thread thread_;                       // from the first filter on
};

}  // namespace ridge
