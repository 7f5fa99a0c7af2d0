// The largest logits of rows in order, so that the host can sample without seeing the rows: the largest of groups by a block for each piece, then a block takes a row.
#include "cuda/kernels/choosing/row_scratch.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

__global__ void __launch_bounds__(kWeighThreads) maxima_kernel(RowScratch scratch, Tensor rows) {
  follow();
  find_maxima(scratch.maxima_of(blockIdx.y), logit_row(rows, blockIdx.y), blockIdx.x, int(rows.cols));
}

__global__ void __launch_bounds__(kSortThreads) top_kernel(TopLogits* tops, RowScratch scratch, Tensor rows) {
  __shared__ Key keys[kHeldKeys];
  follow();
  TopLogits& top = tops[blockIdx.x];
  const int n_found = largest_in_order(keys, logit_row(rows, blockIdx.x), int(rows.cols), scratch.maxima_of(blockIdx.x));
  if (threadIdx.x == 0) top.n_found = n_found;
  if (int(threadIdx.x) < n_found) top.top[threadIdx.x] = {place_in(keys[threadIdx.x]), number_in(keys[threadIdx.x])};
}

}  // namespace

int64_t row_scratch_bytes(const Tensor& rows) { return RowScratch::bytes(rows); }

void find_top(TopLogits* top, const Tensor& rows, std::byte* scratch, const Launch& l) {
  if (rows.rows == 0) return;
  const RowScratch own(scratch, rows);
  launch_kernel(maxima_kernel, dim3(own.n_pieces, rows.rows), kWeighThreads, 0, l.stream, own, rows);
  launch_kernel(top_kernel, rows.rows, kSortThreads, 0, l.stream, top, own, rows);
}

}  // namespace ridge::cuda
