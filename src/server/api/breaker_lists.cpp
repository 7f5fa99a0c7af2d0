#include "server/api/breaker_lists.h"

namespace ridge {
namespace {

constexpr size_t kMostLists = 32;              // clients use the default or one of their own; beyond this somebody is playing

}  // namespace

std::shared_ptr<const SequenceBreakers> BreakerLists::of(const Tokenizer& tokenizer, const std::vector<std::string>& strings) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(strings); found != known_.end()) return found->second;
  }
  auto made = std::make_shared<const SequenceBreakers>(find_sequence_breakers(tokenizer, strings));
  const std::lock_guard lock(mutex_);
  if (known_.size() >= kMostLists) known_.clear();
  return known_.emplace(strings, std::move(made)).first->second;
}

}  // namespace ridge
