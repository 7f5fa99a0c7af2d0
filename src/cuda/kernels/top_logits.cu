// The largest logits of rows in order, so that the host can sample without seeing the rows. A block takes a row.
#include "cuda/kernels/kernels.h"
#include "cuda/lib/largest.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

__global__ void __launch_bounds__(kSortThreads) top_kernel(TopLogits* tops, Tensor rows) {
  __shared__ Key keys[kHeldKeys];
  follow();
  TopLogits& top = tops[blockIdx.x];
  const int n_found = largest_in_order(keys, logit_row(rows, blockIdx.x), int(rows.cols));
  if (threadIdx.x == 0) top.n_found = n_found;
  if (int(threadIdx.x) < n_found) top.top[threadIdx.x] = {place_in(keys[threadIdx.x]), number_in(keys[threadIdx.x])};
}

}  // namespace

void find_top(TopLogits* top, const Tensor& rows, const Launch& l) {
  if (rows.rows > 0) launch_kernel(top_kernel, rows.rows, kSortThreads, 0, l.stream, top, rows);
}

}  // namespace ridge::cuda
