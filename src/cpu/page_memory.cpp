#include "cpu/page_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace ridge::cpu {

PageMemory::PageMemory(int64_t n_bytes) : size_(n_bytes) {
  constexpr int64_t kHuge = int64_t{2} << 20;
  CHECK_GE(n_bytes, 0);
  if (n_bytes == 0) return;
  if (n_bytes > std::numeric_limits<int64_t>::max() - 2 * kHuge) fail("cannot allocate {} bytes of memory", n_bytes);
  const bool huge = n_bytes >= kHuge;
  mapping_size_ = static_cast<size_t>(n_bytes + (huge ? kHuge : 0));
  mapping_ = mmap(nullptr, mapping_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    fail("cannot allocate {:.1f} MiB of memory ({}); a smaller context, batch or weight format would need less", n_bytes / 1048576.0, std::strerror(errno));
  }
  auto address = reinterpret_cast<uintptr_t>(mapping_);
  if (huge) address = (address + kHuge - 1) / kHuge * kHuge;
  data_ = reinterpret_cast<std::byte*>(address);
  if (huge) madvise(data_, static_cast<size_t>(n_bytes), MADV_HUGEPAGE);        // only advice: without it everything works, slower
}

PageMemory::~PageMemory() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}

PageMemory::PageMemory(PageMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_size_(std::exchange(other.mapping_size_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

PageMemory& PageMemory::operator=(PageMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_size_, other.mapping_size_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace ridge::cpu
