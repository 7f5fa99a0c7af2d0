// Stop strings in a stream of text pieces: text is let through as soon as it cannot be part of a stop string any more. A stop string may lie across any
// number of pieces; it and what follows are never let through.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops = {}) : stops_(std::move(stops)) {}

  std::string push(std::string_view piece);                   // what may be shown now
  std::string flush();                                        // what was held back, when the text ends without a stop
  bool stopped() const { return !matched_.empty(); }
  const std::string& matched() const { return matched_; }     // the stop string that ended it

 private:
  std::vector<std::string> stops_;
  std::string held_;                                          // could still become a stop string
  std::string matched_;
};

}  // namespace ridge
