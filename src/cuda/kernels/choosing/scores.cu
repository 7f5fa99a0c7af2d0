// What the model gives the tokens that a step's rows chose, or that were named (backend/step.h): for the rows that ask, after their logits are as the model made them again. The sum of a row by
// pieces, a block each; then a block a row, which says the logarithm and, where they are asked for, the largest in order.
#include "cuda/kernels/choosing/largest.h"
#include "cuda/kernels/choosing/row_scratch.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

// The token that a row scores, or -1: none.
__device__ int scored_token(const Choices& to, int row) {
  const Draw& draw = to.draws[row];
  if (!draw.scores()) return -1;
  return draw.scored >= 0 ? draw.scored : __ldcg(to.tokens + *to.turn * to.rows + row);
}

// Measured from the token's own logit: it lies a few tens under the largest at most, or is hopeless.
__global__ void __launch_bounds__(kWeighThreads) weigh_kernel(RowScratch scratch, Tensor rows, Choices to) {
  follow();
  const int row = blockIdx.y, token = scored_token(to, row);
  if (token < 0) return;
  const LogitRow x = logit_row(rows, row);
  if (to.draws[row].n_logprobs > 0) find_maxima(scratch.maxima_of(row), x, blockIdx.x, int(rows.cols));
  const double sum = weigh_piece(Weigher{x, double(x(token)), 1.0, 0.0f}, blockIdx.x, int(rows.cols));
  if (threadIdx.x == 0) scratch.sums_of(row)[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kSortThreads) score_kernel(RowScratch scratch, Tensor rows, Choices to) {
  __shared__ Key keys[kHeldKeys];
  follow();
  const int row = blockIdx.x, token = scored_token(to, row);
  if (token < 0) return;
  const LogitRow x = logit_row(rows, row);
  Score& score = to.scores[*to.turn * to.rows + row];
  const double total = sum_of_pieces<kSortThreads>(scratch.sums_of(row), scratch.n_pieces);
  if (threadIdx.x == 0) {
    const float logit = x(token);
    score.logit = logit;
    score.log_sum = double(logit) + log(total);
  }
  if (to.draws[row].n_logprobs == 0) return;
  const int n_found = largest_in_order(keys, x, int(rows.cols), scratch.maxima_of(row)), i = threadIdx.x;
  if (i == 0) score.top.n_found = n_found;
  if (i < n_found) score.top.top[i] = {place_in(keys[i]), number_in(keys[i])};
}

}  // namespace

void score(const Tensor& rows, std::byte* scratch, const Launch& l) {
  if (rows.rows == 0) return;
  const RowScratch own(scratch, rows);
  launch_kernel(weigh_kernel, dim3(own.n_pieces, rows.rows), kWeighThreads, 0, l.stream, own, rows, l.choices);
  launch_kernel(score_kernel, rows.rows, kSortThreads, 0, l.stream, own, rows, l.choices);
}

}  // namespace ridge::cuda
