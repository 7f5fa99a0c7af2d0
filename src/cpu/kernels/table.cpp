// The table of this ISA.
#include "cpu/dispatch.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/matmul.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

template <class Op> bool always(const Op&) { return true; }
bool stores(const RopeStore& op) { return supports_kv(op.kv); }
bool attends(const PagedAttention& op) { return supports_kv(op.kv) && fits_attention(op); }

constexpr Kernel<Embed, Lane> kEmbed[] = {{"rows", always<Embed>, embed}};
constexpr Kernel<AddNorm, Lane> kAddNorm[] = {{"rows", always<AddNorm>, add_norm}};
constexpr Kernel<HeadNorm, Lane> kHeadNorm[] = {{"heads", always<HeadNorm>, head_norm}};
constexpr Kernel<RopeAngles, Lane> kRopeAngles[] = {{"libm", always<RopeAngles>, rope_angles}};
constexpr Kernel<RopeStore, Lane> kRopeStore[] = {{"heads", stores, rope_store}};
constexpr Kernel<PagedAttention, Lane> kAttention[] = {{"tiles64", attends, paged_attention}};
constexpr Kernel<Activate, Lane> kActivate[] = {{"pieces", always<Activate>, activate}};
constexpr Kernel<GatherRows, Lane> kGatherRows[] = {{"pieces", always<GatherRows>, gather_rows}};
constexpr Kernel<ScaleCap, Lane> kScaleCap[] = {{"pieces", always<ScaleCap>, scale_cap}};

}  // namespace

const KernelTable& kernel_table() {
  static const KernelTable table{.embed = kEmbed, .add_norm = kAddNorm, .head_norm = kHeadNorm, .matmul = matmul_kernels(),
                                 .rope_angles = kRopeAngles, .rope_store = kRopeStore, .attention = kAttention, .activate = kActivate,
                                 .gather_rows = kGatherRows, .scale_cap = kScaleCap};
  return table;
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
