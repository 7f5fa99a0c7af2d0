// Host memory for pages that were pushed out of the device's: buffers by group, used again, within a limit of bytes.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace ridge {

class HostPages {
 public:
  using Page = std::unique_ptr<std::byte[]>;
  HostPages(std::vector<int64_t> page_bytes, int64_t max_bytes) : page_bytes_(std::move(page_bytes)), free_(page_bytes_.size()), max_bytes_(max_bytes) {}

  bool fits(int64_t n_bytes) const { return used_bytes_ + n_bytes <= max_bytes_; }
  int64_t max_bytes() const { return max_bytes_; }
  int64_t used_bytes() const { return used_bytes_; }

  Page take(int group) {                     // of the group's page_bytes; the caller asked fits()
    used_bytes_ += page_bytes_[group];
    if (!free_[group].empty()) {
      Page page = std::move(free_[group].back());
      free_[group].pop_back();
      return page;
    }
    if (allocated_bytes_ + page_bytes_[group] > max_bytes_) let_go();
    allocated_bytes_ += page_bytes_[group];
    return Page(new std::byte[page_bytes_[group]]);
  }
  void give(int group, Page page) {
    used_bytes_ -= page_bytes_[group];
    free_[group].push_back(std::move(page));
  }

 private:
  void let_go() {                            // of buffers that wait for pages of another size
    for (size_t g = 0; g < free_.size(); ++g) {
      allocated_bytes_ -= int64_t(free_[g].size()) * page_bytes_[g];
      free_[g].clear();
    }
  }

  std::vector<int64_t> page_bytes_;
  std::vector<std::vector<Page>> free_;
  int64_t max_bytes_, used_bytes_ = 0, allocated_bytes_ = 0;
};

}  // namespace ridge
