// Matmuls of one token that follow each other, each over what the one before has made, are the phases of one kernel (kernels/matmul/few_tokens.cu): a layer's o, gate and up, down, and the next
// layer's q, k and v. Where one kernel ends and the next begins all of memory waits for 2 us and more; between phases the next weights are on their way, and a result reaches whoever
// needs it number by number, through a relay (lib/relay.h). So blocks of a kernel wait for each other, which they may: a device places all blocks of a kernel before those of a later one, on any
// stream. With CUDA_LAUNCH_BLOCKING=1 every kernel has one phase, since every op is waited for.
#pragma once
#include <vector>

#include "cuda/kernels/kernels.h"

namespace ridge::cuda {

// Relays are two sets, by turns: what a kernel has used the next one clears, for the one after that.
constexpr int64_t kRelaySetBytes = 192 << 10, kRelayBytes = 2 * kRelaySetBytes;

class PhasedMatmuls {
 public:
  // Launched by the next flush(), or before it, where the matmul does not follow the one before.
  void add(const Matmul& op, const Around& around, const Launch& launch);
  void flush(const Launch& launch);

 private:
  bool joins(FewPhase& next, const Launch& launch);

  std::vector<FewPhase> phases_;             // not launched yet
  int n_kernels_ = 0;                        // of the step, in a format that has phases
  int64_t n_used_ = 0;                       // bytes of the set that is this kernel's
  int64_t n_dirty_[2] = {-1, -1};            // of each set; -1: not known
};

}  // namespace ridge::cuda
