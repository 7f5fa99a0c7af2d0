// Matmul with smmla (armv8.6 i8mm), twice the products of sdot an instruction: for 2 tokens and more and any int8 weights. One smmla multiplies two outputs by
// two tokens over 8 inputs; a panel is unpacked into scratch with neighbouring groups of 4 inputs zipped together:
//
//   pair h of groups (inputs 8h .. 8h+7), outputs 2v and 2v+1:  16 bytes at 128 h + 16 v, as signed numbers              v = 0..7
//   sums of outputs 2v, 2v+1 and tokens t, t+1:  [2v,t] [2v,t+1] [2v+1,t] [2v+1,t+1];  uzp1 and uzp2 of two such make four outputs of one token
#include "cpu/features.h"
#include "cpu/kernels/matmul_plan.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

// Over what unpack() wrote: bytes become the signed numbers, pairs of groups are zipped. Scales stay where Unpacked has them.
template <class Format>
void unpack_zipped(uint8_t* out, Bytes panel, int64_t n_superblocks) {
  unpack<Format>(out, panel, n_superblocks);
  const uint8x16_t offset = vdupq_n_u8(static_cast<uint8_t>(Format::kOffset));
  for (int64_t i = 0; i < n_superblocks; ++i, out += Unpacked<Format>::kBytes)
    for (int h = 0; h < 8; ++h) {
      uint32x4_t even[4], odd[4];
      for (int q = 0; q < 4; ++q) {
        even[q] = vreinterpretq_u32_u8(vsubq_u8(vld1q_u8(out + 128 * h + 16 * q), offset));
        odd[q] = vreinterpretq_u32_u8(vsubq_u8(vld1q_u8(out + 128 * h + 64 + 16 * q), offset));
      }
      for (int q = 0; q < 4; ++q) {
        vst1q_u8(out + 128 * h + 32 * q, vreinterpretq_u8_u32(vzip1q_u32(even[q], odd[q])));
        vst1q_u8(out + 128 * h + 32 * q + 16, vreinterpretq_u8_u32(vzip2q_u32(even[q], odd[q])));
      }
    }
}

// One panel by two tokens.
template <class Format>
[[gnu::noinline]] void run_pair(const Matmul& op, int i, Bytes panel_data, int64_t panel, int64_t token, IntInput x, int n_tokens) {
  using Source = Unpacked<Format>;
  constexpr int kBlock = Format::kBlock;
  const int64_t second = n_tokens > 1 ? x.stride : 0;               // a last odd token is computed twice
  F acc[1][2] = {{zero(), zero()}};
  for (; x.n_planes > 0; x = x.next_plane()) {
    const int8_t* codes = x.codes;
    Bytes s = panel_data;
    for (int64_t k = 0; k < superblocks_of(op.x.cols) * 64; k += 64, s += Source::kBytes)
      for (int b = 0; b < 64 / kBlock; ++b) {
        int32x4_t sums[8];
#pragma GCC unroll kUnroll
        for (int v = 0; v < 8; ++v) sums[v] = vdupq_n_s32(0);
#pragma GCC unroll kUnroll
        for (int h = 0; h < kBlock / 8; ++h) {
          const int8_t* at = codes + k + kBlock * b + 8 * h;
          const int8x16_t pair = vcombine_s8(vld1_s8(at), vld1_s8(at + second));
#pragma GCC unroll kUnroll
          for (int v = 0; v < 8; ++v) sums[v] = vmmlaq_s32(sums[v], vld1q_s8(reinterpret_cast<const int8_t*>(s) + 128 * (kBlock / 8 * b + h) + 16 * v), pair);
        }
        const I first{vuzp1q_s32(sums[0], sums[1]), vuzp1q_s32(sums[2], sums[3]), vuzp1q_s32(sums[4], sums[5]), vuzp1q_s32(sums[6], sums[7])};
        const I next{vuzp2q_s32(sums[0], sums[1]), vuzp2q_s32(sums[2], sums[3]), vuzp2q_s32(sums[4], sums[5]), vuzp2q_s32(sums[6], sums[7])};
        const F scale = Source::scale(s, b);
        const int64_t at_scale = (k + kBlock * b) / 32, at_sum = (k + kBlock * b) / kBlock;
        const F scale_first = set1(x.scales[at_scale]), scale_next = set1(at_bytes(x.scales + at_scale, second));
        acc[0][0] = fma(to_float(first), mul(scale, scale_first), acc[0][0]);
        acc[0][1] = fma(to_float(next), mul(scale, scale_next), acc[0][1]);
        if constexpr (Format::kMin) {
          const F min = Source::min(s, b);
          acc[0][0] = fma(min, set1(x.products[at_sum]), acc[0][0]);
          acc[0][1] = fma(min, set1(at_bytes(x.products + at_sum, second)), acc[0][1]);
        }
      }
  }
  if (n_tokens > 1) return finish<1, 2>(acc, op, i, panel, token);
  F one[1][1] = {{acc[0][0]}};
  finish<1, 1>(one, op, i, panel, token);
}

template <class Format>
void pair_panels(const Plan& plan, int i, int64_t first, int64_t last, const QuantizedTokens& x, int64_t token_first, int64_t token_last, std::byte* own) {
  const Matmul& op = plan.op;
  auto* scratch = reinterpret_cast<uint8_t*>(own);
  const int64_t n_superblocks = superblocks_of(op.x.cols), panel_bytes = n_superblocks * superblock_bytes(Format::kPanel);
  for (int64_t panel = first; panel < last; ++panel) {
    unpack_zipped<Format>(scratch, reinterpret_cast<Bytes>(op.w[i]->packed.data) + panel * panel_bytes, n_superblocks);
    for (int64_t token = token_first; token < token_last; token += 2)
      run_pair<Format>(op, i, scratch, panel, token, plan.input(x, token - token_first, i), token_last - token > 1 ? 2 : 1);
  }
}

}  // namespace

bool matrix_supports(const Matmul& op) {
  if (op.x.rows < 2 || !has_feature("i8mm")) return false;
  for (const Weight* w : op.w)
    if (w && !integer(*w)) return false;
  return true;
}

void run_matrix(const Matmul& op, Lane& lane) {
  sweep_many<1>(op, lane, superblocks_of(op.x.cols) * 1536, NoneBeside{}, [&](const Plan& plan, int i, int64_t a, int64_t b, const QuantizedTokens& x, int64_t first, int64_t last) {
    with_format(*op.w[i], [&](auto format) {
      using Format = decltype(format);
      if constexpr (Coded<Format>) pair_panels<Format>(plan, i, a, b, x, first, last, lane.own.data());
    });
  });
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
