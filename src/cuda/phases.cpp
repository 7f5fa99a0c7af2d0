#include "cuda/phases.h"

namespace ridge::cuda {

// Where it does, its input and the output of the phase before are a relay. The first kernel of a step has one phase: nobody has cleared a set for it.
bool PhasedMatmuls::joins(FewPhase& next, const Launch& launch) {
  constexpr int64_t kMostNormed = 4096;                                      // columns that a block holds in registers, which it asks for until they are there
  FewPhase& last = phases_.back();
  if (!launch.relays || n_kernels_ == 0 || phases_.size() == kMostPhases || !few_tokens_follow(next.op, last.op, launch)) return false;
  const Tensor& x = next.op.x;
  const bool normed = next.around.norm && last.around.residual && last.around.residual->x.data == next.around.norm->x.data && x.cols <= kMostNormed;
  // Every team has a tile of what is activated, during which it asks for the first piece of the next input.
  const bool activated = next.around.x_bf16 && last.around.bf16_out && last.around.activate->out.data == x.data && few_tokens_occupy(last.op, launch);
  const int64_t n_bytes = x.cols * (activated ? 2 : 4);
  if ((!normed && !activated) || n_used_ + n_bytes > kRelaySetBytes) return false;
  std::byte* const relay = launch.relays + n_kernels_ % 2 * kRelaySetBytes + n_used_;
  n_used_ += n_bytes;
  next.around.x_relay = relay;
  if (activated) last.around.bf16_out = relay;
  else last.around.relay = reinterpret_cast<float*>(relay);
  return true;
}

void PhasedMatmuls::add(const Matmul& op, const Around& around, const Launch& launch) {
  FewPhase next{op, around};
  if (!phases_.empty() && !joins(next, launch)) flush(launch);
  phases_.push_back(next);
}

void PhasedMatmuls::flush(const Launch& launch) {
  if (phases_.empty()) return;
  RelayWords cleared{};
  if (launch.relays && phases_[0].op.x.rows == 1 && few_tokens_phased(phases_[0].op)) {
    const int set = n_kernels_ % 2, other = 1 - set;
    const int64_t n_bytes = n_dirty_[other] < 0 ? kRelaySetBytes : n_dirty_[other];
    if (n_bytes > 0) cleared = {reinterpret_cast<uint32_t*>(launch.relays + other * kRelaySetBytes), int(n_bytes / 4)};
    n_dirty_[other] = 0;
    if (n_used_ > 0) n_dirty_[set] = n_used_;
    n_kernels_++;
  }
  matmul_few_tokens(phases_, cleared, launch);
  phases_.clear();
  n_used_ = 0;
}

}  // namespace ridge::cuda
