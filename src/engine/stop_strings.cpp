#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace ridge {

std::string StopStrings::push(std::string_view piece) {
  if (stopped()) return {};
  held_ += piece;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    // The earliest match ends the text; of several that begin there, the longest is named.
    if (at == std::string::npos || at > first || (at == first && stop.size() < matched_.size())) continue;
    first = at;
    matched_ = stop;
  }
  if (first != std::string::npos) {
    std::string out = held_.substr(0, first);
    held_.clear();
    return out;
  }
  size_t keep = 0;                           // the longest end of the text that begins a stop string
  for (const std::string& stop : stops_)
    for (size_t n = std::min(held_.size(), stop.size() - 1); n > keep; --n)
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) {
        keep = n;
        break;
      }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopStrings::flush() { return std::exchange(held_, {}); }

}  // namespace ridge
