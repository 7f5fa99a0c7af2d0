#include "cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <vector>

#include "backend/host_peaks.h"
#include "base/check.h"
#include "base/error.h"
#include "cpu/dispatch.h"
#include "cpu/features.h"
#include "cpu/pack.h"
#include "cpu/page_memory.h"
#include "cpu/team.h"
#include "cpu/topology.h"

namespace ridge {
namespace {

template <class Op>
const Kernel<Op, Lane>& choose(cpu::Candidates<Op> candidates, const Op& op) {
  for (const Kernel<Op, Lane>& kernel : candidates)
    if (kernel.supports(op)) return kernel;
  check_failed(__FILE__, __LINE__, "no CPU kernel supports the op", fmt::format("{} candidates", candidates.size()));
}

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : isa_(cpu::find_isa(options.isa)),
        team_(options.n_threads > 0 ? options.n_threads : cpu::read_topology().n_cores, options.pin) {
    if (options.force_kernel.empty()) return;
    for (const auto& kernel : isa_.table.matmul)
      if (kernel.name == options.force_kernel) forced_ = &kernel;
    for (const auto& kernel : isa_.table.attention)
      if (kernel.name == options.force_kernel) forced_attention_ = &kernel;
    if (!forced_ && !forced_attention_) fail("no matmul or attention kernel of {} is called '{}'; `ridge bench --kernels` lists them", isa_.name, options.force_kernel);
  }

  std::string name() const override {
    return fmt::format("cpu {}, {} thread{}", isa_.name, team_.n_workers(), team_.n_workers() == 1 ? "" : "s");
  }

  // Pieces are cut from common mappings on huge pages, which a weight of its own mapping would only half fill; a very large one gets its own.
  std::byte* allocate(int64_t n_bytes) override {
    constexpr int64_t kChunk = int64_t{64} << 20;
    CHECK_GE(n_bytes, 0);
    if (n_bytes >= kChunk / 2) return memory_.emplace_back(n_bytes).data();
    const int64_t size = std::max<int64_t>(64, (n_bytes + 63) / 64 * 64);
    if (chunk_left_ < size) {
      chunk_ = memory_.emplace_back(kChunk).data();
      chunk_left_ = kChunk;
    }
    std::byte* piece = chunk_;
    chunk_ += size;
    chunk_left_ -= size;
    return piece;
  }

  Weight prepare(const StoredWeight& stored, Arithmetic arithmetic) override {
    widest_ = std::max(widest_, stored.cols);
    if (arithmetic.k_block == 0) arithmetic.k_block = cpu::has_feature("amx_int8") ? 64 : 32;      // by the machine, not by the ISA in use: all of them agree
    Weight w = cpu::pack_weight(stored, arithmetic, [this](int64_t n_bytes) { return allocate(n_bytes); }, team_);
    streams_[w.packed.data].starts.resize(static_cast<size_t>(team_.n_workers()));
    return w;
  }

  // The kernel decodes rows where the file has them; `packed` points to the planes.
  Weight prepare_table(const StoredWeight& stored) override {
    if (!format(stored.format).readable)
      fail("tensor {} is stored as {}, which cannot be decoded: convert the checkpoint to bf16, q8_0 or nvfp4", stored.name, format(stored.format).name);
    widest_ = std::max(widest_, stored.cols);
    const StoredWeight& kept = tables_.emplace_back(stored);
    Weight table{.format = stored.format, .rows = stored.rows, .cols = stored.cols, .scale = stored.scale, .name = stored.name};
    table.packed = {reinterpret_cast<std::byte*>(const_cast<StoredWeight*>(&kept)), FormatId::unknown, stored.rows, stored.cols, 0};
    for (const Tensor* plane : {&stored.codes, &stored.scales, &stored.zeros, &stored.index}) table.bytes += plane->bytes();
    return table;
  }

  Tensor upload(const float* values, int64_t n) override {
    const Tensor tensor = allocate_f32(1, n);
    if (n > 0) std::memcpy(tensor.data, values, static_cast<size_t>(n) * 4);
    return tensor;
  }

  void begin(const Step& step) override {
    step_ = &peaks_.resolve(step);
    const int64_t widest = widest_ + 64;
    team_.reserve((int64_t{8} << 20) + 256 * widest, (int64_t{1} << 20) + 8 * widest * step.limits().max_tokens);
  }

  void run(const Op& op) override {
    CHECK(step_ != nullptr);
    std::visit([this](const auto& o) { run_op(o); }, op);
  }

  void end() override {
    submit();
    wait();
  }
  void submit() override {
    team_.wait();
    peaks_.submitted(*step_);
    step_ = nullptr;
  }
  void wait() override { peaks_.waited(); }
  const Peak* watch_peaks(const Tensor& logits) override { return peaks_.watch(logits); }
  void give_masks(Masks masks) override { peaks_.give_masks(masks); }
  const Score* watched_scores() const override { return peaks_.scores(); }

  void download(void* host, const Tensor& tensor) override {
    team_.wait();
    const int64_t n_bytes = row_bytes(tensor.format, tensor.cols);
    for (int64_t r = 0; r < tensor.rows; ++r) std::memcpy(static_cast<std::byte*>(host) + r * n_bytes, tensor.row(r), static_cast<size_t>(n_bytes));
  }

 private:
  template <class Op> void run_op(const Op& op) { team_.run(kernel_of(op).run, op, step_, hints_of(op)); }
  // Tokens are quantized once for all weights of an op; weights that want their scales over different numbers of inputs are multiplied one by one.
  void run_op(const Matmul& op) {
    if (in_one_k_block(op)) return run_op<Matmul>(op);
    for (size_t i = 0; i < op.w.size() && op.w[i]; ++i) run_op<Matmul>({.out = {op.out[i]}, .x = op.x, .w = {op.w[i]}, .bias = {op.bias[i]}});
  }
  static bool in_one_k_block(const Matmul& op) {
    int k_block = 0;
    for (const Weight* w : op.w) {
      if (!w || w->arithmetic.x == FormatId::f32) continue;
      if (k_block != 0 && w->arithmetic.k_block != k_block) return false;
      k_block = w->arithmetic.k_block;
    }
    return true;
  }

  template <class Op> StreamHints hints_of(const Op&) { return {}; }
  // Matmuls come in the same order step after step: the one that followed this one the last time is the one to expect.
  StreamHints hints_of(const Matmul& op) {
    const auto found = streams_.find(op.w[0]->packed.data);
    if (found == streams_.end()) return {};
    Streams& streams = found->second;
    if (last_streams_) last_streams_->next = streams.starts.data();
    last_streams_ = &streams;
    return {.mine = streams.starts.data(), .next = streams.next};
  }

  const Kernel<Matmul, Lane>& kernel_of(const Matmul& op) const {
    return forced_ && forced_->supports(op) ? *forced_ : choose(isa_.table.matmul, op);
  }
  const Kernel<Embed, Lane>& kernel_of(const Embed& op) const { return choose(isa_.table.embed, op); }
  const Kernel<AddNorm, Lane>& kernel_of(const AddNorm& op) const { return choose(isa_.table.add_norm, op); }
  const Kernel<HeadNorm, Lane>& kernel_of(const HeadNorm& op) const { return choose(isa_.table.head_norm, op); }
  const Kernel<RopeAngles, Lane>& kernel_of(const RopeAngles& op) const { return choose(isa_.table.rope_angles, op); }
  const Kernel<RopeStore, Lane>& kernel_of(const RopeStore& op) const { return choose(isa_.table.rope_store, op); }
  const Kernel<PagedAttention, Lane>& kernel_of(const PagedAttention& op) const {
    return forced_attention_ && forced_attention_->supports(op) ? *forced_attention_ : choose(isa_.table.attention, op);
  }
  const Kernel<Activate, Lane>& kernel_of(const Activate& op) const { return choose(isa_.table.activate, op); }
  const Kernel<AddScaled, Lane>& kernel_of(const AddScaled& op) const { return choose(isa_.table.add_scaled, op); }
  const Kernel<ScaleByPosition, Lane>& kernel_of(const ScaleByPosition& op) const { return choose(isa_.table.scale_by_position, op); }
  const Kernel<HeadMatmul, Lane>& kernel_of(const HeadMatmul& op) const { return choose(isa_.table.head_matmul, op); }
  const Kernel<MoeRoute, Lane>& kernel_of(const MoeRoute& op) const { return choose(isa_.table.moe_route, op); }
  const Kernel<MoeMatmul, Lane>& kernel_of(const MoeMatmul& op) const { return choose(isa_.table.moe_matmul, op); }
  const Kernel<MoeCombine, Lane>& kernel_of(const MoeCombine& op) const { return choose(isa_.table.moe_combine, op); }
  const Kernel<ShortConv, Lane>& kernel_of(const ShortConv& op) const { return choose(isa_.table.short_conv, op); }
  const Kernel<LinearScan, Lane>& kernel_of(const LinearScan& op) const { return choose(isa_.table.linear_scan, op); }
  const Kernel<SelectiveScan, Lane>& kernel_of(const SelectiveScan& op) const { return choose(isa_.table.selective_scan, op); }
  const Kernel<IndexTopK, Lane>& kernel_of(const IndexTopK& op) const { return choose(isa_.table.index_top_k, op); }
  const Kernel<CompressKv, Lane>& kernel_of(const CompressKv& op) const { return choose(isa_.table.compress_kv, op); }
  const Kernel<HyperEnter, Lane>& kernel_of(const HyperEnter& op) const { return choose(isa_.table.hyper_enter, op); }
  const Kernel<HyperLeave, Lane>& kernel_of(const HyperLeave& op) const { return choose(isa_.table.hyper_leave, op); }
  const Kernel<GatherRows, Lane>& kernel_of(const GatherRows& op) const { return choose(isa_.table.gather_rows, op); }
  const Kernel<ScaleCap, Lane>& kernel_of(const ScaleCap& op) const { return choose(isa_.table.scale_cap, op); }

  // Of the Matmul that begins with a weight: where each worker began to read it, and the same of the Matmul that came next.
  struct Streams {
    std::vector<StreamStart> starts;
    const StreamStart* next = nullptr;
  };

  cpu::Isa isa_;
  std::deque<cpu::PageMemory> memory_;
  std::byte* chunk_ = nullptr;
  int64_t chunk_left_ = 0;
  std::deque<StoredWeight> tables_;          // addresses stay: tables point here
  std::unordered_map<const std::byte*, Streams> streams_;      // by packed.data; entries keep their addresses
  Streams* last_streams_ = nullptr;
  int64_t widest_ = 0;                       // inputs of the widest weight: the size of scratch follows
  const Kernel<Matmul, Lane>* forced_ = nullptr;
  const Kernel<PagedAttention, Lane>* forced_attention_ = nullptr;
  const Step* step_ = nullptr;
  HostPeaks peaks_;
  Team team_;                                // last, so that its workers end before what they use
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) { return std::make_unique<CpuBackend>(options); }

}  // namespace ridge
