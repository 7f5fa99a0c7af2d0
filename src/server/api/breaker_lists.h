// The DRY sampler's sequence breakers, found once per list of strings: finding them looks at the whole vocabulary.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "text/sequence_breakers.h"

namespace ridge {

class BreakerLists {
 public:
  // From any thread. Throws Error as find_sequence_breakers does.
  std::shared_ptr<const SequenceBreakers> of(const Tokenizer& tokenizer, const std::vector<std::string>& strings);

 private:
  std::mutex mutex_;
  std::map<std::vector<std::string>, std::shared_ptr<const SequenceBreakers>> known_;
};

}  // namespace ridge
