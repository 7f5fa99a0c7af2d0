#include "kv/page_pool.h"

#include "base/check.h"

namespace ridge {

PagePool::PagePool(int n_pages) : n_refs_(n_pages, 0) {
  // Taken from the back: page 0 goes first, so that a lightly used pool touches the front of its memory only.
  free_.reserve(n_pages);
  for (int page = n_pages - 1; page >= 0; --page) free_.push_back(page);
}

int32_t PagePool::take() {
  if (free_.empty()) return -1;
  const int32_t page = free_.back();
  free_.pop_back();
  n_refs_[page] = 1;
  return page;
}

void PagePool::share(int32_t page) {
  CHECK(page >= 0 && page < n_pages());
  CHECK_GT(n_refs_[page], 0);
  n_refs_[page]++;
}

void PagePool::drop(int32_t page) {
  CHECK(page >= 0 && page < n_pages());
  CHECK_GT(n_refs_[page], 0);
  if (--n_refs_[page] == 0) free_.push_back(page);
}

void PagePool::check_integrity(const std::vector<int>& expected_refs) const {
  CHECK_EQ(expected_refs.size(), n_refs_.size());
  std::vector<bool> is_free(n_refs_.size(), false);
  for (const int32_t page : free_) {
    CHECK(page >= 0 && page < n_pages());
    CHECK(!is_free[page]);
    is_free[page] = true;
  }
  for (int page = 0; page < n_pages(); ++page) {
    CHECK_EQ(n_refs_[page], expected_refs[page]);
    CHECK_EQ(bool(is_free[page]), n_refs_[page] == 0);
  }
}

}  // namespace ridge
