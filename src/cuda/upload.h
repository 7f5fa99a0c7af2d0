// The way of weights to the device. A few threads copy (or decode) rows from where the file is mapped into one of a few pinned buffers, while the ones before are
// under way or being rearranged on the device. So a load takes the longer of the two, the bus or the page faults, and nobody waits at the end of a weight: what
// follows on the stream comes after it anyway.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace ridge::cuda {

class Uploader {
 public:
  explicit Uploader(cudaStream_t stream);
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  // Rows [first, first + n), one after the other, in pinned memory; raw: memory of the device for as many bytes, until the next portion but three.
  struct Portion { const std::byte* host; std::byte* raw; int64_t first, n, bytes; };
  // Fills a row; called by several threads at once.
  using Fill = std::function<void(std::byte* to, int64_t row)>;
  // Queues on the stream what is to be done with a portion.
  using Send = std::function<void(const Portion&)>;
  // All rows in portions of whole multiples of `together` rows (the last one may be shorter).
  void send(int64_t n_rows, int64_t row_bytes, int together, const Fill& fill, const Send& send);

 private:
  static constexpr int kSlots = 4;
  struct Slot { std::byte* host = nullptr; std::byte* raw = nullptr; cudaEvent_t free = nullptr; };
  class Crew;
  void reserve(int64_t n_bytes);
  void release();

  cudaStream_t stream_;
  std::array<Slot, kSlots> slots_;
  int64_t slot_bytes_ = 0;
  int next_ = 0;
  std::unique_ptr<Crew> crew_;
};

}  // namespace ridge::cuda
