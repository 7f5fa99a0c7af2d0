// The table of this ISA.
#include "cpu/dispatch.h"
#include "cpu/features.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/matmul.h"
#include "cpu/simd/dot.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

template <class Op> bool always(const Op&) { return true; }
bool stores(const RopeStore& op) { return supports_kv(op.kv); }
bool attends(const PagedAttention& op) { return supports_kv(op.kv) && fits_attention(op) && !op.value_in_key && !op.selected; }
bool attends_to_latents(const PagedAttention& op) { return supports_kv(op.kv) && fits_latent_attention(op); }
template <class Op> bool attends_in_bf16(const Op& op) {      // a template: not every ISA has what it calls
  if (kBf16 == Bf16::tiles && !(has_feature("amx_bf16") && has_feature("avx512_bf16"))) return false;
  return op.may_use_bf16 && attends(op) && fits_bf16_attention(op);
}
bool indexes(const IndexTopK& op) { return supports_kv(op.kv) && fits_index_top_k(op); }

constexpr Kernel<Embed, Lane> kEmbed[] = {{"rows", always<Embed>, embed}};
constexpr Kernel<AddNorm, Lane> kAddNorm[] = {{"rows", always<AddNorm>, add_norm}};
constexpr Kernel<HeadNorm, Lane> kHeadNorm[] = {{"heads", always<HeadNorm>, head_norm}};
constexpr Kernel<AddScaled, Lane> kAddScaled[] = {{"pieces", always<AddScaled>, add_scaled}};
constexpr Kernel<ScaleByPosition, Lane> kScaleByPosition[] = {{"pieces", always<ScaleByPosition>, scale_by_position}};
constexpr Kernel<RopeAngles, Lane> kRopeAngles[] = {{"libm", always<RopeAngles>, rope_angles}};
constexpr Kernel<RopeStore, Lane> kRopeStore[] = {{"heads", stores, rope_store}};
constexpr Kernel<IndexTopK, Lane> kIndexTopK[] = {{"rows64", indexes, index_top_k}};
constexpr Kernel<CompressKv, Lane> kCompressKv[] = {{"rows", fits_compress_kv, compress_kv}};
constexpr Kernel<HyperEnter, Lane> kHyperEnter[] = {{"rows", always<HyperEnter>, hyper_enter}};
constexpr Kernel<HyperLeave, Lane> kHyperLeave[] = {{"pieces", fits_hyper, hyper_leave}};
constexpr Kernel<HeadMatmul, Lane> kHeadMatmul[] = {{"panels", always<HeadMatmul>, head_matmul}};
constexpr Kernel<Activate, Lane> kActivate[] = {{"pieces", always<Activate>, activate}};
constexpr Kernel<ShortConv, Lane> kShortConv[] = {{"pieces", fits_conv, short_conv}};
constexpr Kernel<LinearScan, Lane> kLinearScan[] = {{"pages64", fits_scan, linear_scan}};
constexpr Kernel<SelectiveScan, Lane> kSelectiveScan[] = {{"channels", fits_selective_scan, selective_scan}};
constexpr Kernel<MoeRoute, Lane> kMoeRoute[] = {{"tokens", always<MoeRoute>, moe_route}};
constexpr Kernel<MoeMatmul, Lane> kMoeMatmul[] = {{"grouped", always<MoeMatmul>, moe_matmul}};
constexpr Kernel<MoeCombine, Lane> kMoeCombine[] = {{"pieces", always<MoeCombine>, moe_combine}};
constexpr Kernel<GatherRows, Lane> kGatherRows[] = {{"pieces", always<GatherRows>, gather_rows}};
constexpr Kernel<ScaleCap, Lane> kScaleCap[] = {{"pieces", always<ScaleCap>, scale_cap}};

std::span<const Kernel<PagedAttention, Lane>> attention_kernels() {
  constexpr Kernel<PagedAttention, Lane> kTiles64{"tiles64", attends, paged_attention}, kRows64{"rows64", attends_to_latents, latent_attention};
  if constexpr (kBf16 == Bf16::none) {
    static constexpr Kernel<PagedAttention, Lane> kCandidates[] = {kTiles64, kRows64};
    return kCandidates;
  } else {
    constexpr Kernel<PagedAttention, Lane> kInBf16{"bf16", attends_in_bf16<PagedAttention>, bf16_attention};
    static constexpr Kernel<PagedAttention, Lane> kFirst[] = {kInBf16, kTiles64, kRows64}, kLast[] = {kTiles64, kRows64, kInBf16};
    if constexpr (kBf16 == Bf16::tiles) return kFirst;
    else return kLast;
  }
}

}  // namespace

const KernelTable& kernel_table() {
  static const KernelTable table{.embed = kEmbed, .add_norm = kAddNorm, .head_norm = kHeadNorm, .matmul = matmul_kernels(),
                                 .rope_angles = kRopeAngles, .rope_store = kRopeStore, .attention = attention_kernels(), .activate = kActivate,
                                 .add_scaled = kAddScaled, .scale_by_position = kScaleByPosition, .head_matmul = kHeadMatmul,
                                 .moe_route = kMoeRoute, .moe_matmul = kMoeMatmul, .moe_combine = kMoeCombine,
                                 .short_conv = kShortConv, .linear_scan = kLinearScan, .selective_scan = kSelectiveScan,
                                 .index_top_k = kIndexTopK, .compress_kv = kCompressKv, .hyper_enter = kHyperEnter, .hyper_leave = kHyperLeave,
                                 .gather_rows = kGatherRows, .scale_cap = kScaleCap};
  return table;
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
