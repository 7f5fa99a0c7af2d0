// Pages of one group by number: a free list and reference counts.
#pragma once
#include <cstdint>
#include <vector>

namespace ridge {

class PagePool {
 public:
  explicit PagePool(int n_pages = 0);
  int n_pages() const { return int(n_refs_.size()); }
  int n_free() const { return int(free_.size()); }
  [[nodiscard]] int32_t take();              // -1 when none is left; the reference count becomes 1
  void share(int32_t page);                  // one more reference
  void drop(int32_t page);                   // one less; the last one frees the page
  int n_refs(int32_t page) const { return n_refs_[page]; }
  void check_integrity(const std::vector<int>& expected_refs) const;

 private:
  std::vector<int32_t> free_;
  std::vector<int32_t> n_refs_;
};

}  // namespace ridge
