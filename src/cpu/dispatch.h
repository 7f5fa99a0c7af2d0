// Every ISA compiles the kernels once and exports one table of them; dispatch picks the table when the backend is made, and a kernel of it when an op runs.
// An op has a list of candidates in the order of preference (backend/kernel.h); most have one.
#pragma once
#include <span>
#include <string_view>

#include "backend/kernel.h"
#include "backend/op.h"
#include "cpu/lane.h"

namespace ridge::cpu {

template <class Op> using Candidates = std::span<const Kernel<Op, Lane>>;

struct KernelTable {
  Candidates<Embed> embed;
  Candidates<AddNorm> add_norm;
  Candidates<HeadNorm> head_norm;
  Candidates<Matmul> matmul;
  Candidates<RopeAngles> rope_angles;
  Candidates<RopeStore> rope_store;
  Candidates<PagedAttention> attention;
  Candidates<Activate> activate;
  Candidates<AddScaled> add_scaled;
  Candidates<ScaleByPosition> scale_by_position;
  Candidates<HeadMatmul> head_matmul;
  Candidates<MoeRoute> moe_route;
  Candidates<MoeMatmul> moe_matmul;
  Candidates<MoeCombine> moe_combine;
  Candidates<ShortConv> short_conv;
  Candidates<LinearScan> linear_scan;
  Candidates<SelectiveScan> selective_scan;
  Candidates<IndexTopK> index_top_k;
  Candidates<CompressKv> compress_kv;
  Candidates<HyperEnter> hyper_enter;
  Candidates<HyperLeave> hyper_leave;
  Candidates<GatherRows> gather_rows;
  Candidates<ScaleCap> scale_cap;
};

// Each is defined by kernels/table.cpp of that ISA; dispatch.cpp names only those that the build has.
namespace scalar { const KernelTable& kernel_table(); }
namespace neon { const KernelTable& kernel_table(); }
namespace avx2 { const KernelTable& kernel_table(); }
namespace avx512 { const KernelTable& kernel_table(); }

struct Isa {
  std::string_view name;
  const KernelTable& table;
};
// The ISA of a name, or the best one for "". Throws Error naming those there are when this machine or this build has none such.
Isa find_isa(std::string_view name);

}  // namespace ridge::cpu
