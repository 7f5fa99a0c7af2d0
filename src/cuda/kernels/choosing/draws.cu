// Tokens drawn from rows of logits as the step's Draws say (backend/step.h), in place of the largest, which find_peaks has left there. Two kernels, for a row that is drawn from as a whole:
// the weights of pieces of a row by a block each, then by a block a row the piece and the token in which the draw lies; or, where top_k or top_p cut, the largest of groups, then one of the largest
// of all, in order (kernels/choosing/largest.h). Sums are of doubles in whatever order is quick: what that could decide is left open (backend/draw.h), and the row is the host's.
#include "cuda/kernels/choosing/largest.h"
#include "cuda/kernels/choosing/row_scratch.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lib/launch.h"

namespace ridge::cuda {
namespace {

// Only a draw from the whole row is cut by min_p before it is summed: top_p is a share of what there was before.
__device__ Weigher weigher_of(const LogitRow& x, int peak, const Draw& draw) { return {x, double(x(peak)), draw.sharpness, draw.in_order_of_tokens() ? draw.min_p : 0.0f}; }

__global__ void __launch_bounds__(kWeighThreads) weigh_kernel(RowScratch scratch, Tensor rows, Choices to) {
  follow();
  const int row = blockIdx.y, peak = __ldcg(to.tokens + *to.turn * to.rows + row);
  const Draw& draw = to.draws[row];
  if (!draw.any() || peak < 0) return;
  const LogitRow x = logit_row(rows, row, to);
  if (!draw.in_order_of_tokens()) find_maxima(scratch.maxima_of(row), x, blockIdx.x, int(rows.cols));
  if (draw.top_k > 0) return;
  const double sum = weigh_piece(weigher_of(x, peak, draw), blockIdx.x, int(rows.cols));
  if (threadIdx.x == 0) scratch.sums_of(row)[blockIdx.x] = sum;
}

// In the order of tokens: the piece, then the token. Whoever finds it says so; perhaps nobody does.
__device__ int drawn_in_order(const Weigher& weight, int n, const double* sums, int n_pieces, double u) {
  __shared__ int piece, token;
  __shared__ double base;
  const int pieces_each = (n_pieces + kSortThreads - 1) / kSortThreads, first_piece = threadIdx.x * pieces_each, end_piece = min(first_piece + pieces_each, n_pieces);
  if (threadIdx.x == 0) piece = token = -1;
  double own = 0;
  for (int p = first_piece; p < end_piece; ++p) own += __ldcg(sums + p);
  const Sums of_pieces = running_sums<kSortThreads>(own);                                 // and all see that nothing has been found
  const double wanted = u * of_pieces.all, slack = kDrawSlack * of_pieces.all;
  double up_to = of_pieces.up_to - own, own_base = 0;
  for (int p = first_piece; p < end_piece; ++p) {
    const double before = up_to;
    up_to += __ldcg(sums + p);
    if (before <= wanted && wanted < up_to) atomicMax(&piece, p), own_base = before;       // rounding may give the edge between two to both
  }
  __syncthreads();
  if (piece < 0) return -1;
  if (piece >= first_piece && piece < end_piece) base = own_base;
  __syncthreads();
  constexpr int kEach = kPiece / kSortThreads;
  const int first = piece * kPiece + threadIdx.x * kEach;
  double weights[kEach], in_all = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) in_all += weights[i] = first + i < n ? weight(first + i) : 0.0;
  up_to = base + (running_sums<kSortThreads>(in_all).up_to - in_all);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const double before = up_to;
    up_to += weights[i];
    if (wanted - before > slack && up_to - wanted > slack) token = first + i;
  }
  __syncthreads();
  return token;
}

// Of the largest, likeliest first.
__device__ int drawn_of_largest(Key* keys, const Weigher& weight, int n, const uint32_t* maxima, const double* sums, int n_pieces, const Draw& draw) {
  __shared__ double up_to[TopLogits::kMost];
  __shared__ int token;
  const double total = draw.top_k == 0 ? sum_of_pieces<kSortThreads>(sums, n_pieces) : 0.0;
  // Without -inf, which masks leave more of than there is room for.
  const int n_found = largest_in_order(keys, weight.x, n, maxima, ordered(-INFINITY) + 1), n_listed = draw.top_k > 0 ? min(draw.top_k, n_found) : n_found, i = threadIdx.x;
  if (n_listed <= 0) return -1;
  const double distance = i < n_listed ? weight.distance(number_in(keys[i])) : 0.0, own = i < n_listed ? exp(distance) : 0.0;
  const Sums of_listed = running_sums<kSortThreads>(own);
  if (i < n_listed) up_to[i] = of_listed.up_to;
  const int kept = i < n_listed ? is_kept(own, distance, draw.min_p) : 0;
  const int n_kept = __syncthreads_count(kept > 0), n_unsure = __syncthreads_count(kept < 0);
  if (i == 0) {
    const bool is_all = draw.top_k > 0 || n_found < TopLogits::kMost || n_found == n;
    const SortedWeights sorted{.up_to = up_to, .n_listed = n_listed, .n_kept = n_kept, .is_all = is_all, .total = is_all ? of_listed.all : total};
    const int place = n_unsure > 0 || n_kept == 0 ? -1 : place_drawn(sorted, draw);
    token = place < 0 ? -1 : place_in(keys[place]);
  }
  __syncthreads();
  return token;
}

__global__ void __launch_bounds__(kSortThreads) draw_kernel(RowScratch scratch, Tensor rows, Choices to) {
  __shared__ Key keys[kHeldKeys];
  follow();
  const int row = blockIdx.x, at = *to.turn * to.rows + row, peak = __ldcg(to.tokens + at), n = int(rows.cols);
  const Draw draw = to.draws[row];
  if (!draw.any() || peak < 0) return;
  const double* const sums = scratch.sums_of(row);
  const LogitRow x = logit_row(rows, row, to);
  const Weigher weight = weigher_of(x, peak, draw);
  const int token = draw.in_order_of_tokens() ? drawn_in_order(weight, n, sums, scratch.n_pieces, draw.u) : drawn_of_largest(keys, weight, n, scratch.maxima_of(row), sums, scratch.n_pieces, draw);
  if (threadIdx.x > 0) return;
  to.peaks[at] = token < 0 ? Peak{-1, 0.0f} : Peak{token, x(token)};
  to.tokens[at] = token;
}

}  // namespace

void draw(const Tensor& rows, std::byte* scratch, const Launch& l) {
  if (rows.rows == 0) return;
  const RowScratch own(scratch, rows);
  launch_kernel(weigh_kernel, dim3(own.n_pieces, rows.rows), kWeighThreads, 0, l.stream, own, rows, l.choices);
  launch_kernel(draw_kernel, rows.rows, kSortThreads, 0, l.stream, own, rows, l.choices);
}

}  // namespace ridge::cuda
