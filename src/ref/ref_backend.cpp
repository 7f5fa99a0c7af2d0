// Memory and weights of `ref`. A weight below 64 MB is decoded to f32 once (format f32 in `packed`); a larger one stays as its file has it, and its rows are
// decoded at each use (`packed` then points to the StoredWeight and has format unknown). Either way the numbers multiplied are the same.
#include "ref/ref_backend.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "backend/host_peaks.h"
#include "base/check.h"
#include "base/error.h"
#include "ref/ref_ops.h"

namespace ridge {
namespace {

constexpr int64_t kLargestDecodedCopy = 64ll << 20;

class RefBackend : public Backend {
 public:
  std::string name() const override { return "ref"; }

  std::byte* allocate(int64_t n_bytes) override {
    CHECK_GE(n_bytes, 0);
    const size_t size = (static_cast<size_t>(n_bytes) + 64) / 64 * 64;
    void* memory = std::aligned_alloc(64, size);
    if (!memory) fail("no memory for {} bytes: use a smaller context, fewer sequences, or a smaller model", n_bytes);
    std::memset(memory, 0, size);
    memory_.emplace_back(static_cast<std::byte*>(memory));
    return memory_.back().get();
  }

  Weight prepare(const StoredWeight& stored, Arithmetic arithmetic) override {
    if (!format(stored.format).readable)
      fail("tensor {} is stored as {}, which cannot be decoded: convert the checkpoint to bf16, q8_0 or nvfp4", stored.name, format(stored.format).name);
    Weight weight{.format = stored.format, .arithmetic = arithmetic, .rows = stored.rows, .cols = stored.cols, .scale = stored.scale, .name = stored.name};
    for (const Tensor* plane : {&stored.codes, &stored.scales, &stored.zeros, &stored.index}) weight.bytes += plane->bytes();
    if (stored.rows * stored.cols <= kLargestDecodedCopy / 4) {
      weight.packed = allocate_f32(stored.rows, stored.cols);
      for (int64_t r = 0; r < stored.rows; r++) decode_stored_row(weight.packed.f32(r), stored, r);
    } else {
      stored_.push_back(stored);
      weight.packed = {reinterpret_cast<std::byte*>(&stored_.back()), FormatId::unknown, stored.rows, stored.cols, 0};
    }
    return weight;
  }

  Weight prepare_table(const StoredWeight& stored) override { return prepare(stored, {}); }

  Tensor upload(const float* values, int64_t n) override {
    const Tensor tensor = allocate_f32(1, n);
    std::memcpy(tensor.data, values, static_cast<size_t>(n) * 4);
    return tensor;
  }

  void begin(const Step& step) override { step_ = &peaks_.resolve(step); }
  void run(const Op& op) override {
    CHECK(step_ != nullptr);
    std::visit([&](const auto& o) { ref::run(o, *step_); }, op);
  }
  void end() override {
    submit();
    wait();
  }
  void submit() override {
    peaks_.submitted(*step_);
    step_ = nullptr;
  }
  void wait() override { peaks_.waited(); }
  const Peak* watch_peaks(const Tensor& logits) override { return peaks_.watch(logits); }
  void give_masks(Masks masks) override { peaks_.give_masks(masks); }
  const Score* watched_scores() const override { return peaks_.scores(); }

  void download(void* host, const Tensor& tensor) override {
    const auto n_bytes = static_cast<size_t>(row_bytes(tensor.format, tensor.cols));
    for (int64_t r = 0; r < tensor.rows; r++) std::memcpy(static_cast<std::byte*>(host) + r * static_cast<int64_t>(n_bytes), tensor.row(r), n_bytes);
  }

 private:
  struct Free { void operator()(std::byte* p) const { std::free(p); } };
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
  std::deque<StoredWeight> stored_;          // addresses stay: packed tensors point here
  const Step* step_ = nullptr;
  HostPeaks peaks_;
};

}  // namespace

const float* ref::weight_row(float* buffer, const Weight& weight, int64_t r) {
  if (weight.packed.format == FormatId::f32) return weight.packed.f32(r);
  decode_stored_row(buffer, *reinterpret_cast<const StoredWeight*>(weight.packed.data), r);
  return buffer;
}

std::unique_ptr<Backend> make_ref_backend() { return std::make_unique<RefBackend>(); }

}  // namespace ridge
