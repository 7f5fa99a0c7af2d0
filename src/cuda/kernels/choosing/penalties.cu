// Penalties and biases on rows of logits (backend/step.h), in place, before tokens are chosen from them; and the same rows as they were, afterwards, for whoever looks at them. A block
// takes a row's list: tokens are in it once, so its threads never meet. The row's own token, which the step before may have chosen, is found in the list or counts as new.
#include "cuda/kernels/choosing/chosen.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 512;

// As ridge::penalised does it: nothing is fused, so that the bits are the host's.
__device__ float after_penalties(float x, const Penalties& p, float bias, bool is_recent, int n_generated) {
  if (bias != 0.0f) x = __fadd_rn(x, bias);
  if (is_recent) x = x > 0.0f ? __fdiv_rn(x, p.repetition) : __fmul_rn(x, p.repetition);
  if (n_generated > 0) x = __fsub_rn(x, __fadd_rn(p.presence, __fmul_rn(p.frequency, __int2float_rn(n_generated))));
  return x;
}

template <bool kBack>
__global__ void __launch_bounds__(kThreads) penalties_kernel(Tensor rows, const int32_t* tokens, const int32_t* logit_rows, Choices to) {
  follow();
  const int row = blockIdx.x;
  const Penalties p = to.draws[row].penalties;
  if (!p.any()) return;
  float* const x = reinterpret_cast<float*>(rows.data + row * rows.stride);
  const auto change = [&](int token, float* was, float bias, bool is_recent, int n_generated) {
    if constexpr (kBack) {
      x[token] = __ldcg(was);
    } else {
      const float logit = *was = __ldcg(x + token);
      x[token] = after_penalties(logit, p, bias, is_recent, n_generated);
    }
  };
  const int own = p.counts_own ? named_token(tokens[logit_rows[row]], to) : -1;
  bool is_listed = false;
  for (int i = p.first_count + int(threadIdx.x); i < p.first_count + p.n_counts; i += kThreads) {
    const TokenCount count = to.counts[i];
    const bool is_own = count.token == own;
    change(count.token, to.unpenalised + to.rows + i, count.bias, count.is_recent || is_own, int(count.n_generated) + is_own);
    is_listed |= is_own;
  }
  if (__syncthreads_or(is_listed) || own < 0 || threadIdx.x > 0) return;
  change(own, to.unpenalised + row, 0.0f, true, 1);
}

template <bool kBack>
void run(const Tensor& rows, const Launch& l) {
  if (rows.rows > 0) launch_kernel(penalties_kernel<kBack>, rows.rows, kThreads, 0, l.stream, rows, l.step.tokens, l.step.logit_rows, l.choices);
}

}  // namespace

void penalise(const Tensor& rows, const Launch& l) { run<false>(rows, l); }
void unpenalise(const Tensor& rows, const Launch& l) { run<true>(rows, l); }

}  // namespace ridge::cuda
