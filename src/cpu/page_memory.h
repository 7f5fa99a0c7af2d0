// Zeroed memory straight from the kernel, on huge pages where it is large enough: a decoded token streams through gigabytes of weights, and with pages of
// 4 KB the address translation costs as much as the data.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace ridge::cpu {

class PageMemory {
 public:
  PageMemory() = default;
  explicit PageMemory(int64_t n_bytes);      // throws Error when there is not so much
  ~PageMemory();
  PageMemory(PageMemory&& other) noexcept;
  PageMemory& operator=(PageMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  void* mapping_ = nullptr;
  size_t mapping_size_ = 0;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace ridge::cpu
