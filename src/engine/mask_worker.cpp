#include "engine/mask_worker.h"

#include <algorithm>

#include "base/check.h"

namespace ridge {
namespace {

uint64_t next_round(uint64_t ticket, size_t n_jobs) { return ((ticket >> 32) + 1) << 32 | n_jobs; }

}  // namespace

MaskWorker::~MaskWorker() {
  if (!thread_.joinable()) return;
  quit_.store(true);
  ticket_.store(next_round(ticket_.load(), 0));
  ticket_.notify_one();
  thread_.join();
}

void MaskWorker::begin() {
  next_ = 0;
  if (jobs_.empty()) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  if (words_.size() < jobs_.size() * n_words_) words_.resize(jobs_.size() * n_words_);
  n_done_.store(0);
  ticket_.store(next_round(ticket_.load(), jobs_.size()), std::memory_order_release);
  ticket_.notify_one();
}

bool MaskWorker::run_one() {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if (uint32_t(ticket) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire));
  const size_t i = uint32_t(ticket) - 1;
  Job& job = jobs_[i];
  const std::span<uint32_t> words = words_of(i);
  std::fill(words.begin(), words.end(), ~0u);
  try {
    job.restricts = job.filter->restrict(words);
  } catch (...) {
    job.thrown = std::current_exception();
  }
  n_done_.fetch_add(1, std::memory_order_release);
  n_done_.notify_one();
  return true;
}

void MaskWorker::work() {
  while (!quit_.load()) {
    const uint64_t seen = ticket_.load();
    if (run_one()) continue;
    if (uint32_t(seen) == 0 && !quit_.load()) ticket_.wait(seen);
  }
}

void MaskWorker::wait() {
  if (jobs_.empty()) return;
  while (run_one()) {}
  for (int n; (n = n_done_.load(std::memory_order_acquire)) < int(jobs_.size());) n_done_.wait(n, std::memory_order_acquire);
}

std::span<const uint32_t> MaskWorker::mask_of(const TokenFilter* filter) {
  for (size_t n_seen = 0; next_ == jobs_.size() || jobs_[next_].filter != filter; ++n_seen) {
    CHECK_LE(n_seen, jobs_.size());
    next_ = next_ < jobs_.size() ? next_ + 1 : 0;
  }
  if (jobs_[next_].thrown) std::rethrow_exception(jobs_[next_].thrown);
  return jobs_[next_].restricts ? words_of(next_) : std::span<uint32_t>{};
}

}  // namespace ridge
