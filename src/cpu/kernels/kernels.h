// The kernels of the small ops and of attention, one function each, in the namespace of the ISA that this is compiled for. Matmul has its own header.
#pragma once
#include "backend/op.h"
#include "cpu/lane.h"
#include "cpu/simd/vocabulary.h"

namespace ridge::cpu::RIDGE_ISA_NS {

void embed(const Embed& op, Lane& lane);
void add_norm(const AddNorm& op, Lane& lane);
void head_norm(const HeadNorm& op, Lane& lane);
void rope_angles(const RopeAngles& op, Lane& lane);
void rope_store(const RopeStore& op, Lane& lane);
void paged_attention(const PagedAttention& op, Lane& lane);
void bf16_attention(const PagedAttention& op, Lane& lane);      // kernels/amx_attention.cpp
void latent_attention(const PagedAttention& op, Lane& lane);
void index_top_k(const IndexTopK& op, Lane& lane);
void compress_kv(const CompressKv& op, Lane& lane);
void hyper_enter(const HyperEnter& op, Lane& lane);
void hyper_leave(const HyperLeave& op, Lane& lane);
void activate(const Activate& op, Lane& lane);
void add_scaled(const AddScaled& op, Lane& lane);
void scale_by_position(const ScaleByPosition& op, Lane& lane);
void head_matmul(const HeadMatmul& op, Lane& lane);
void moe_route(const MoeRoute& op, Lane& lane);
void moe_matmul(const MoeMatmul& op, Lane& lane);
void moe_combine(const MoeCombine& op, Lane& lane);
void short_conv(const ShortConv& op, Lane& lane);
void linear_scan(const LinearScan& op, Lane& lane);
void selective_scan(const SelectiveScan& op, Lane& lane);
void gather_rows(const GatherRows& op, Lane& lane);
void scale_cap(const ScaleCap& op, Lane& lane);

bool supports_kv(const KvRef& kv);           // page size and formats that rope_store and paged_attention know
bool fits_attention(const PagedAttention& op);
bool fits_bf16_attention(const PagedAttention& op);
bool fits_conv(const ShortConv& op);
bool fits_scan(const LinearScan& op);
bool fits_selective_scan(const SelectiveScan& op);
bool fits_latent_attention(const PagedAttention& op);
bool fits_index_top_k(const IndexTopK& op);
bool fits_compress_kv(const CompressKv& op);
bool fits_hyper(const HyperLeave& op);

// Calls work(row, first, last) for this worker's share of a [rows, cols] tensor, cut into pieces of whole cache lines: an op on single numbers does not
// care who computes which.
template <class Work>
inline void for_pieces(const Lane& lane, int64_t rows, int64_t cols, Work&& work) {
  constexpr int64_t kPiece = 256;
  const int64_t n_pieces = (cols + kPiece - 1) / kPiece;
  const auto [first, last] = lane.part(rows * n_pieces);
  for (int64_t i = first; i < last; ++i) {
    const int64_t begin = i % n_pieces * kPiece;
    work(i / n_pieces, begin, begin + kPiece < cols ? begin + kPiece : cols);
  }
}

// fn(i, n) for 16 columns from i at a time, the last one with n < 16 of them.
template <class Fn>
inline void for_lanes(int64_t first, int64_t last, Fn&& fn) {
  int64_t i = first;
  for (; i + 16 <= last; i += 16) fn(i, 16);
  if (i < last) fn(i, static_cast<int>(last - i));
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
