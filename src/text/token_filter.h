// What may come next in one answer: a grammar, a budget of thought, or several such wishes together. The engine asks for the mask while the forward pass that
// gives the logits runs, so that its time is hidden, and tells which token was chosen. One object belongs to one answer.
#pragma once
#include <cstdint>
#include <span>

namespace ridge {

class TokenFilter {
 public:
  virtual ~TokenFilter() = default;
  // `mask` has bit t % 32 of word t / 32 for token t, all set. Clears those that may not come next. False: everything may, and the mask is as it was.
  // Called on a thread of the engine, never at the same time as the others.
  [[nodiscard]] virtual bool restrict(std::span<uint32_t> mask) = 0;
  virtual void accept(int32_t token) = 0;    // one that was allowed
  virtual bool done() const = 0;             // nothing may follow: the answer ends with the reason `stop`
};

}  // namespace ridge
