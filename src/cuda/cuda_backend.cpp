#include "cuda/cuda_backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "backend/op_place.h"
#include "base/check.h"
#include "cuda/kernels/attention/flash.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/matmul/gemm.h"
#include "cuda/lib/device.h"
#include "cuda/lowering.h"
#include "cuda/phases.h"
#include "cuda/weights.h"

namespace ridge {
namespace {

using namespace cuda;

constexpr int64_t kArenaBytes = int64_t{64} << 20;                          // small requests are cut from blocks of this size
constexpr int64_t kLandingBytes = int64_t{4} << 20;
constexpr int64_t kStepHead = 64;                                           // bytes in front of a step's block: its turn
constexpr int kGraphTokens = 256;                                          // of a step that is captured, at most

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options) : options_(options) {
    if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) fail("--device cuda: {}", reason);
    if (options.blocking) options_.graphs = false;
    CUDA_TRY(cudaSetDevice(options.device));
    CUDA_TRY(cudaGetDeviceProperties(&properties_, options.device));
    for (cudaStream_t* stream : {&stream_, &copies_}) CUDA_TRY(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaMallocHost(&mark_, sizeof *mark_));
    launch_.mark.at = mark_;
    launch_.gemm_way = options.gemm_way;
    for (Turn& turn : turns_)
      for (cudaEvent_t* event : {&turn.copied, &turn.done}) CUDA_TRY(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    if (properties_.major >= 9) {
      launch_.scaled = take(int64_t{2} * kMostSeveral * kMostScaledCols);
      launch_.tile_squares = reinterpret_cast<float*>(take(int64_t{4} * kMostSeveral * kMostScaledCols / 16));
      launch_.relays = take(kRelayBytes);
      launch_.chain_sums = reinterpret_cast<float4*>(take(kMostChainSums));
      launch_.tile_relays = reinterpret_cast<float*>(take(kTileRelayBytes, 0xff));       // kUnmade
    }
    weights_ = std::make_unique<WeightStore>(stream_, options.check_f32, [this](int64_t n_bytes) { return allocate(n_bytes); });
  }

  ~CudaBackend() override {
    cudaStreamSynchronize(stream_);
    weights_.reset();
    drop_graphs();
    for (void* p : device_blocks_) cudaFree(p);
    if (pinned_masks_) cudaFreeHost(pinned_masks_);
    if (launch_.choices.peaks) cudaFreeHost(launch_.choices.peaks);
    if (launch_.choices.scores) cudaFreeHost(launch_.choices.scores);
    if (top_) cudaFreeHost(top_);
    if (landing_) cudaFreeHost(landing_);
    if (mark_) cudaFreeHost(mark_);
    for (const Turn& turn : turns_) {
      if (turn.pinned_step) cudaFreeHost(turn.pinned_step);
      cudaEventDestroy(turn.copied);
      cudaEventDestroy(turn.done);
    }
    cudaStreamDestroy(copies_);
    cudaStreamDestroy(stream_);
  }

  std::string name() const override { return options_.check_f32 ? "cuda (f32 check)" : "cuda"; }

  std::byte* allocate(int64_t n_bytes) override {
    n_bytes = round_up(std::max<int64_t>(n_bytes, 1), 256);
    if (n_bytes > kArenaBytes / 4) return take(n_bytes);
    if (!arena_ || arena_used_ + n_bytes > kArenaBytes) {
      arena_ = take(kArenaBytes);
      arena_used_ = 0;
    }
    arena_used_ += n_bytes;
    return arena_ + arena_used_ - n_bytes;
  }

  Weight prepare(const StoredWeight& stored, Arithmetic arithmetic) override { return weights_->prepare(stored, arithmetic); }
  Weight prepare_table(const StoredWeight& stored) override { return weights_->prepare_table(stored); }

  Tensor upload(const float* values, int64_t n) override {
    Tensor t = view(allocate(n * 4), FormatId::f32, 1, n);
    CUDA_TRY(cudaMemcpy(t.data, values, n * 4, cudaMemcpyHostToDevice));
    CUDA_TRY(cudaStreamSynchronize(nullptr));                                // a copy from pageable memory may return before it has arrived
    return t;
  }

  bool supports(const Op& op) const override { return cuda::supports(op); }

  // Of two steps under way each has a block in pinned memory and one in the device's. It is copied beside the step before: between two graphs, in their stream, a copy of 2 KB
  // takes 10 us. In front of a step lies its turn, behind it what penalties change.
  void begin(const Step& step) override {
    CHECK_LT(n_under_way_, 2);
    if (const int64_t n_bytes = kStepHead + int64_t(step.block().size()) + 4ll * (launch_.choices.rows + step.limits().max_counts); n_bytes > step_bytes_) {
      CUDA_TRY(cudaStreamSynchronize(stream_));
      for (Turn& turn : turns_) {
        if (turn.pinned_step) CUDA_TRY(cudaFreeHost(turn.pinned_step));
        CUDA_TRY(cudaMallocHost(&turn.pinned_step, n_bytes));
        turn.device_step = take(n_bytes);
      }
      step_bytes_ = n_bytes;
      drop_graphs();                                                         // they hold the old address
    }
    turn_ = 1 - turn_;
    std::byte *const pinned = turns_[turn_].pinned_step, *const device_step = turns_[turn_].device_step;
    std::memcpy(pinned, &turn_, sizeof turn_);
    std::memcpy(pinned + kStepHead, step.used().data(), step.used().size());
    CUDA_TRY(cudaMemcpyAsync(device_step, pinned, kStepHead + step.used().size(), cudaMemcpyHostToDevice, copies_));
    launch_.choices.counts = step.counts_at(device_step + kStepHead);
    if (const auto counts = std::as_bytes(step.counts()); !counts.empty()) {
      const int64_t at = kStepHead + (counts.data() - step.block().data());
      std::memcpy(pinned + at, counts.data(), counts.size());
      CUDA_TRY(cudaMemcpyAsync(device_step + at, pinned + at, counts.size(), cudaMemcpyHostToDevice, copies_));
    }
    CUDA_TRY(cudaEventRecord(turns_[turn_].copied, copies_));
    CUDA_TRY(cudaStreamWaitEvent(stream_, turns_[turn_].copied));
    int longest = 256, n_few = 0;
    int64_t in_all = 0, longest_context = 0;
    launch_.single_rows = true;
    for (const StepSeq& s : step.seqs()) {
      while (longest < s.n_context) longest *= 2;
      in_all += s.n_context, longest_context = std::max(longest_context, int64_t{s.n_context});
      if (s.n_rows < kFlashManyRows) n_few += s.n_rows;
      if (s.n_rows != 1 || s.first_row != &s - step.seqs().data()) launch_.single_rows = false;
    }
    int few_bucket = n_few > 0 ? 1 : 0;                                     // the rest of the step's rows varies between steps of one shape
    while (few_bucket < n_few) few_bucket *= 2;
    if (n_few == step.n_tokens()) few_bucket = n_few;
    n_logits_ = step.n_logits();
    if (n_under_way_ == 0) *mark_ = -1;
    launch_.stream = stream_;
    launch_.step = step.view_at(device_step + kStepHead);
    launch_.choices.draws = step.draws_at(device_step + kStepHead);
    launch_.choices.unpenalised = reinterpret_cast<float*>(device_step + kStepHead + step.block().size());
    launch_.choices.turn = reinterpret_cast<const int32_t*>(device_step);
    launch_.max_context = longest;
    launch_.n_sms = properties_.multiProcessorCount;
    launch_.compute_capability = properties_.major * 10 + properties_.minor;
    launch_.n_few_rows = few_bucket;
    launch_.even = 2 * in_all >= longest_context * step.n_seqs();
    launch_.max_shared_bytes = int(properties_.sharedMemPerBlockOptin) - kSharedForOthers;
    waits_ = step.waits() && launch_.choices.tokens;
    if (waits_ && !pinned_masks_) CUDA_TRY(cudaMallocHost(&pinned_masks_, watched_.rows * mask_words() * 4));
    launch_.choices.masks = waits_ ? masks_ : nullptr;
    scores_ = step.scores() && launch_.choices.tokens;
    if (scores_ && !launch_.choices.scores) CUDA_TRY(cudaMallocHost(&launch_.choices.scores, 2 * launch_.choices.rows * sizeof(Score)));      // the kernel writes it where it lies
    draws_ = step.draws() && launch_.choices.tokens;
    penalises_ = step.penalises() && launch_.choices.tokens;
    key_ = {step.n_tokens(), step.n_logits(), longest, few_bucket, launch_.even, launch_.single_rows, draws_, penalises_, scores_, waits_, turn_};
    ops_.clear();
    // A graph of this shape starts at once, while the host still names the ops; submit() sees whether they are the captured ones.
    const auto known = graphs_.find(key_);
    replaying_ = known != graphs_.end();
    if (replaying_) CUDA_TRY(cudaGraphLaunch(known->second.exec, stream_));
  }

  void run(const Op& op) override { ops_.push_back(op); }

  // The first step of a shape runs plainly, which also sizes the scratch; when the next is made of the same ops, it is captured. Steps of many tokens are not: they keep the device
  // busy for longer than the host takes to launch them.
  void submit() override {
    const uint64_t print = fingerprint(ops_);
    if (replaying_ && graphs_.at(key_).print != print) {
      // Another model, or ops one by one: what ran was of no use, and did no harm, since every op writes whatever it writes anew, and a turn's choices are not those it reads.
      CUDA_TRY(cudaStreamSynchronize(stream_));
      CUDA_TRY(cudaGraphExecDestroy(graphs_.at(key_).exec));
      graphs_.erase(key_);
      replaying_ = false;
    }
    const bool chooses = launch_.choices.tokens && n_logits_ > 0 && writes_logits();
    if (!replaying_ && !ops_.empty()) {
      for (const Op& op : ops_) grow_scratch(op);
      const auto seen = seen_.find(key_);
      const bool capture = options_.graphs && std::get<0>(key_) <= kGraphTokens && seen != seen_.end() && seen->second == print;
      if (capture) CUDA_TRY(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
      if (options_.blocking) launch_all(ops_, launch_, [this](size_t first, size_t n) { await([&] { return place_of(ops_, first, n); }); });
      else launch_all(ops_, launch_);
      if (chooses && !waits_) choose();
      if (capture) {
        cudaGraph_t graph;
        Graph made{.print = print};
        CUDA_TRY(cudaStreamEndCapture(stream_, &graph));
        CUDA_TRY(cudaGraphInstantiate(&made.exec, graph, 0));
        CUDA_TRY(cudaGraphDestroy(graph));
        graphs_[key_] = made;
        CUDA_TRY(cudaGraphLaunch(made.exec, stream_));
      }
      seen_[key_] = print;
    }
    replaying_ = false;
    turns_[turn_].n_peaks = chooses ? n_logits_ : 0;
    turns_[turn_].scores = chooses && scores_;
    CUDA_TRY(cudaEventRecord(turns_[turn_].done, stream_));
    CUDA_TRY(cudaGetLastError());
    n_under_way_++;
  }

  // Where a step waits for masks, its graph ends with the logits.
  void give_masks(Masks masks) override {
    CHECK(waits_ && n_under_way_ == 1);
    CHECK_GE(int64_t(masks.size()), n_logits_);
    for (int row = 0; row < n_logits_; ++row)
      if (!masks[size_t(row)].empty()) std::memcpy(pinned_masks_ + row * mask_words(), masks[size_t(row)].data(), mask_words() * 4);
      else std::memset(pinned_masks_ + row * mask_words(), 0xff, mask_words() * 4);
    CUDA_TRY(cudaMemcpyAsync(masks_, pinned_masks_, n_logits_ * mask_words() * 4, cudaMemcpyHostToDevice, stream_));
    choose();
    CUDA_TRY(cudaEventRecord(turns_[turn_].done, stream_));
    CUDA_TRY(cudaGetLastError());
  }

  void wait() override {
    CHECK_GT(n_under_way_, 0);
    const int turn = n_under_way_ == 2 ? 1 - turn_ : turn_;
    const cudaError_t status = cudaEventSynchronize(turns_[turn].done);
    // Where two steps are under way, their ops are the same.
    if (const int at = *static_cast<volatile int32_t*>(mark_); is_fault(status) && at >= 0 && at < int(ops_.size()))
      fail("CUDA fault in a kernel: {}; the step had come to {}, or near it; {}", text_of(status), place_of(ops_, size_t(at), 1), kFaultAdvice);
    CUDA_TRY(status);
    CUDA_TRY(cudaGetLastError());
    n_under_way_--;
    const Peak* const landed = launch_.choices.peaks + turn * launch_.choices.rows;
    std::copy(landed, landed + turns_[turn].n_peaks, peaks_.begin());
    watched_scores_ = turns_[turn].scores ? launch_.choices.scores + turn * launch_.choices.rows : nullptr;
  }

  void end() override {
    CHECK_EQ(n_under_way_, 0);
    submit();
    wait();
  }

  bool works_alone() const override { return true; }

  // Through pinned memory: a copy straight into pageable memory takes several times as long.
  void download(void* host, const Tensor& t) override {
    const int64_t row = row_bytes(t.format, t.cols);
    if (row * t.rows > kLandingBytes) {
      CUDA_TRY(cudaStreamSynchronize(stream_));                              // the copy is in another stream
      CUDA_TRY(cudaMemcpy2D(host, row, t.data, t.stride, row, t.rows, cudaMemcpyDeviceToHost));
      return;
    }
    if (!landing_) CUDA_TRY(cudaMallocHost(&landing_, kLandingBytes));
    CUDA_TRY(cudaMemcpy2DAsync(landing_, row, t.data, t.stride, row, t.rows, cudaMemcpyDeviceToHost, stream_));
    CUDA_TRY(cudaStreamSynchronize(stream_));
    std::memcpy(host, landing_, row * t.rows);
  }

  const Peak* watch_peaks(const Tensor& logits) override {
    Choices& choices = launch_.choices;
    CHECK(!choices.tokens);
    watched_ = logits;
    peak_state_ = allocate(logits.rows * 16);
    row_scratch_ = allocate(row_scratch_bytes(logits));
    masks_ = reinterpret_cast<uint32_t*>(allocate(logits.rows * mask_words() * 4));
    choices.rows = int(logits.rows);
    choices.tokens = reinterpret_cast<int32_t*>(allocate(2 * logits.rows * 4));
    CUDA_TRY(cudaMallocHost(&choices.peaks, 2 * logits.rows * sizeof(Peak)));      // the kernel writes it where it lies
    peaks_.resize(size_t(logits.rows));
    return peaks_.data();
  }

  const Score* watched_scores() const override { return watched_scores_; }

  const TopLogits* top_logits(const Tensor& rows) override {
    if (rows.rows > n_top_rows_) {
      if (top_) CUDA_TRY(cudaFreeHost(top_));
      n_top_rows_ = round_up(rows.rows, 16);
      CUDA_TRY(cudaMallocHost(&top_, n_top_rows_ * sizeof(TopLogits)));      // the kernel writes it where it lies
      top_scratch_ = allocate(row_scratch_bytes({rows.data, rows.format, n_top_rows_, rows.cols, rows.stride}));
    }
    launch_.stream = stream_;
    find_top(top_, rows, top_scratch_, launch_);
    await([] { return "find_top"; });
    return top_;
  }

 private:
  // Tokens, logit rows, context bucket, rows of sequences with few, even contexts, single rows, whether it draws, has penalties, scores, masks; its turn (a graph keeps addresses).
  using Key = std::tuple<int, int, int, int, bool, bool, bool, bool, bool, bool, int>;
  // What steps use by turns: the block that is copied to the device, the events of that and of its end, how many rows it chooses from, and whether some have scores.
  struct Turn { std::byte *pinned_step = nullptr, *device_step = nullptr; cudaEvent_t copied = nullptr, done = nullptr; int n_peaks = 0; bool scores = false; };
  struct Graph { cudaGraphExec_t exec = nullptr; uint64_t print = 0; };      // print: of the ops it was captured from

  // For what was launched since the stream was last waited for: that is where a fault was.
  template <class Name>
  void await(Name&& name) {
    cudaError_t status = cudaStreamSynchronize(stream_);
    if (status == cudaSuccess) status = cudaGetLastError();
    if (status != cudaSuccess) fail("CUDA fault in {}: {}", name(), text_of(status));
  }

  int64_t mask_words() const { return (watched_.cols + 31) / 32; }

  // Tokens for the next step. A shape of step has the same kernels, whichever of its rows they have work in.
  void choose() {
    const Tensor rows = watched_.slice_rows(0, n_logits_);
    const auto launched = [&](const char* name) {
      if (options_.blocking) await([&] { return name; });
    };
    if (penalises_) penalise(rows, launch_), launched("penalise");
    find_peaks(rows, peak_state_, launch_), launched("find_peaks");
    if (draws_) draw(rows, row_scratch_, launch_), launched("draw");
    if (penalises_) unpenalise(rows, launch_), launched("unpenalise");
    if (scores_) score(rows, row_scratch_, launch_), launched("score");
  }

  void drop_graphs() {
    for (auto& [key, graph] : graphs_) cudaGraphExecDestroy(graph.exec);
    graphs_.clear();
  }

  bool writes_logits() const {
    return std::any_of(ops_.rbegin(), ops_.rend(), [&](const Op& op) { return std::holds_alternative<Matmul>(op) && std::get<Matmul>(op).out[0].data == watched_.data; });
  }

  std::byte* take(int64_t n_bytes, int every_byte = 0) {
    void* p = nullptr;
    if (const cudaError_t status = cudaMalloc(&p, n_bytes); status != cudaSuccess) {
      cudaGetLastError();
      fail("the GPU has no room for another {:.2f} GiB ({:.2f} GiB are free): a smaller model, a smaller format or a shorter --ctx-size would fit", n_bytes / 1073741824.0,
           cuda_free_bytes() / 1073741824.0);
    }
    device_blocks_.push_back(p);
    CUDA_TRY(cudaMemset(p, every_byte, n_bytes));
    CUDA_TRY(cudaStreamSynchronize(nullptr));                                // stream_ does not wait for the stream that clears it
    return static_cast<std::byte*>(p);
  }

  void grow_scratch(const Op& op) {
    const auto grow = [&](auto*& pointer, int64_t& have, int64_t need) {
      if (need <= have) return;
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(take(need));
      have = need;
      CUDA_TRY(cudaStreamSynchronize(stream_));
      drop_graphs();                                                         // they hold the old address
    };
    if (const auto* a = std::get_if<PagedAttention>(&op)) grow(launch_.attention_scratch, launch_.attention_scratch_bytes, attention_scratch_needed(*a, launch_));
    if (const auto* m = std::get_if<Matmul>(&op)) grow(launch_.matmul_scratch, launch_.matmul_scratch_bytes, tiles_bytes(m->x.rows, m->x.cols));
    if (const auto* n = std::get_if<AddNorm>(&op)) grow(launch_.factors, launch_.factors_bytes, (n->out.rows + kTileTokens) * 4);
    if (const auto* a = std::get_if<Activate>(&op)) grow(launch_.activated, launch_.activated_bytes, tiles_bytes(a->out.rows, a->out.cols));
  }

  CudaOptions options_;
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr, copies_ = nullptr;                         // copies_: of steps to the device
  std::vector<void*> device_blocks_;
  std::byte* arena_ = nullptr;
  int64_t arena_used_ = 0;
  std::unique_ptr<WeightStore> weights_;
  std::array<Turn, 2> turns_;
  int32_t turn_ = 0;                                                         // of the step that was begun last
  int n_under_way_ = 0;
  int64_t step_bytes_ = 0;
  int32_t* mark_ = nullptr;                                                  // pinned: an op that the step has come to, -1 before the first layer
  std::byte* landing_ = nullptr;                                             // pinned: downloads
  Tensor watched_;                                                           // logits whose peaks are wanted
  std::byte *peak_state_ = nullptr, *row_scratch_ = nullptr;
  std::vector<Peak> peaks_;                                                  // of the step that was waited for last
  const Score* watched_scores_ = nullptr;                                    // the same; null: it has none
  uint32_t *pinned_masks_ = nullptr, *masks_ = nullptr;                      // [logit row][mask_words()]; pinned: from the first step that waits for masks on
  bool draws_ = false, penalises_ = false, scores_ = false, waits_ = false;                  // the step that was begun last
  TopLogits* top_ = nullptr;                                                 // pinned
  std::byte* top_scratch_ = nullptr;
  int64_t n_top_rows_ = 0;
  int n_logits_ = 0;
  Launch launch_{};
  Key key_{};
  std::vector<Op> ops_;                                                      // of the step so far
  bool replaying_ = false;
  std::map<Key, uint64_t> seen_;                                             // the fingerprint of the last step of a shape
  std::map<Key, Graph> graphs_;
};

}  // namespace

std::string cuda_unavailable_reason() {
  int n = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&n); status != cudaSuccess) {
    cudaGetLastError();
    return fmt::format("no CUDA device can be used: {}", cudaGetErrorString(status));
  }
  if (n == 0) return "no CUDA device was found";
  cudaDeviceProp p{};
  if (cudaGetDeviceProperties(&p, 0) != cudaSuccess) return "the CUDA device does not answer";
  if (p.major < 8) return fmt::format("{} has compute capability {}.{}; 8.0 or later is needed", p.name, p.major, p.minor);
  return "";
}

std::string cuda_device_description() {
  cudaDeviceProp p{};
  if (!cuda_unavailable_reason().empty() || cudaGetDeviceProperties(&p, 0) != cudaSuccess) return "";
  return fmt::format("{}, {} SMs, {:.1f} GiB", p.name, p.multiProcessorCount, p.totalGlobalMem / 1073741824.0);
}

int64_t cuda_free_bytes() {
  size_t free_bytes = 0, total = 0;
  return cudaMemGetInfo(&free_bytes, &total) == cudaSuccess ? int64_t(free_bytes) : 0;
}

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) { return std::make_unique<CudaBackend>(options); }

void cuda_copy(std::byte* to, const std::byte* from, int64_t n_bytes) {
  CUDA_TRY(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDefault, nullptr));
  CUDA_TRY(cudaStreamSynchronize(nullptr));
}

}  // namespace ridge
