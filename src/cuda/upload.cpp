#include "cuda/upload.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/lib/device.h"

namespace ridge::cuda {
namespace {

constexpr int64_t kSlotBytes = int64_t{16} << 20;
constexpr int64_t kPieceBytes = int64_t{256} << 10;                         // that one thread fills at a time
constexpr int kMaxThreads = 8;                                              // a bus of 50 GB/s and page faults on the way

}  // namespace

// Threads that share a loop with their caller, and sleep in between.
class Uploader::Crew {
 public:
  explicit Crew(int n_helpers) {
    for (int i = 0; i < n_helpers; ++i) helpers_.emplace_back([this](const std::stop_token& stop) { serve(stop); });
  }
  ~Crew() {
    for (auto& helper : helpers_) helper.request_stop();
    wake_.notify_all();
  }

  // body(i) for every i in [0, n), in any order; done on return.
  void share(int64_t n, const std::function<void(int64_t)>& body) {
    {
      const std::lock_guard lock(mutex_);
      body_ = &body, n_ = n, next_ = 0, n_busy_ = int(helpers_.size()), ++round_;
    }
    wake_.notify_all();
    work();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return n_busy_ == 0; });
  }

 private:
  void work() {
    for (int64_t i; (i = next_.fetch_add(1)) < n_;) (*body_)(i);
  }
  void serve(const std::stop_token& stop) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (wake_.wait(lock, stop, [&] { return round_ != seen; })) {
      seen = round_;
      lock.unlock();
      work();
      lock.lock();
      if (--n_busy_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::condition_variable done_;
  const std::function<void(int64_t)>* body_ = nullptr;
  std::atomic<int64_t> next_ = 0;
  int64_t n_ = 0;
  int n_busy_ = 0;
  uint64_t round_ = 0;
  std::vector<std::jthread> helpers_;                                       // the last member: stopped and joined before the others go
};

Uploader::Uploader(cudaStream_t stream) : stream_(stream) {}

Uploader::~Uploader() { release(); }

void Uploader::release() {
  cudaStreamSynchronize(stream_);
  for (Slot& slot : slots_) {
    if (slot.host) cudaFreeHost(slot.host);
    if (slot.raw) cudaFree(slot.raw);
    if (slot.free) cudaEventDestroy(slot.free);
    slot = {};
  }
  slot_bytes_ = 0;
}

void Uploader::reserve(int64_t n_bytes) {
  if (n_bytes <= slot_bytes_) return;
  release();
  const int64_t wanted = std::max(n_bytes, kSlotBytes);
  for (Slot& slot : slots_) {
    CUDA_TRY(cudaMallocHost(&slot.host, wanted));
    CUDA_TRY(cudaMalloc(&slot.raw, wanted));
    CUDA_TRY(cudaEventCreateWithFlags(&slot.free, cudaEventDisableTiming));
  }
  slot_bytes_ = wanted;
}

void Uploader::send(int64_t n_rows, int64_t row_bytes, int together, const Fill& fill, const Send& send) {
  reserve(row_bytes * together);
  if (!crew_) crew_ = std::make_unique<Crew>(std::clamp(int(std::thread::hardware_concurrency()), 1, kMaxThreads) - 1);
  const int64_t rows_a_time = slot_bytes_ / row_bytes / together * together, rows_a_piece = std::max<int64_t>(1, kPieceBytes / row_bytes);
  for (int64_t first = 0; first < n_rows; first += rows_a_time) {
    const int64_t n = std::min(rows_a_time, n_rows - first);
    const Slot& slot = slots_[next_];
    next_ = (next_ + 1) % kSlots;
    CUDA_TRY(cudaEventSynchronize(slot.free));                               // an event that was never recorded is past
    crew_->share((n + rows_a_piece - 1) / rows_a_piece, [&](int64_t piece) {
      for (int64_t r = piece * rows_a_piece; r < std::min(n, (piece + 1) * rows_a_piece); ++r) fill(slot.host + r * row_bytes, first + r);
    });
    send({slot.host, slot.raw, first, n, n * row_bytes});
    CUDA_TRY(cudaGetLastError());
    CUDA_TRY(cudaEventRecord(slot.free, stream_));
  }
}

}  // namespace ridge::cuda
