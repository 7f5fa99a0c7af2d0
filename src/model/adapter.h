// LoRA adapters in PEFT's form: a matrix W of the base model gives W x + scale * B (A x), with A [rank, inputs] and B [outputs, rank]; scale is alpha / rank, or
// alpha / sqrt(rank) (rslora). Many adapters share one base: which of them a row of a step follows, its sequence says.
//
//   Adapter          what one adapter adds to which weights; its own memory, so that it can go while the model stays
//   AdaptedBackend   a Backend around a Backend: after each Matmul it adds, for the rows of each adapter, what that one says; no op or module knows of it
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backend/backend.h"
#include "files/weight_file.h"

namespace ridge {

class Adapter {
 public:
  struct Part { Weight a, b; float scale; };
  const Part* find(const Weight& base) const {
    const auto it = parts_.find(base.packed.data);
    return it == parts_.end() ? nullptr : &it->second;
  }
  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }
  int rank() const { return rank_; }                         // the largest
  size_t n_parts() const { return parts_.size(); }
  int64_t bytes() const { return bytes_; }

 private:
  friend class AdaptedBackend;
  std::string name_, path_;
  int rank_ = 0;
  int64_t bytes_ = 0;
  std::unique_ptr<WeightFile> file_;
  std::unique_ptr<Backend> memory_;                          // where its weights were prepared
  std::unordered_map<const std::byte*, Part> parts_;         // by the base weight's packed data
};

class AdaptedBackend : public Backend {
 public:
  static constexpr int kMaxRank = 512;
  explicit AdaptedBackend(Backend& inner) : inner_(inner) {}

  // Reads adapter_config.json and adapter_model.safetensors of a folder. `base`: the file the model was loaded from; `memory`: a backend of the same kind, which
  // the adapter keeps. Throws Error naming the key, the tensor or the target that does not fit.
  std::shared_ptr<const Adapter> load(const std::string& name, const std::string& folder, const WeightFile& base, std::unique_ptr<Backend> memory) const;

  // Which weights rows of tokens are multiplied by: found by a pass of one token, see watch(). Scratch for steps of max_tokens is made then.
  bool knows_targets() const { return !targets_.empty(); }
  void watch(bool watch) { watching_ = watch; }              // while it watches, ops are noted and not run
  void make_scratch(int max_tokens);

  struct Run { int first_row, n_rows; const Adapter* adapter; };
  void follow(std::vector<Run> runs) { runs_ = std::move(runs); }      // for the next passes; none: the base model

  std::string name() const override { return inner_.name(); }
  std::byte* allocate(int64_t n_bytes) override { return inner_.allocate(n_bytes); }
  Weight prepare(const StoredWeight& stored, Arithmetic arithmetic) override;
  Weight prepare_table(const StoredWeight& stored) override { return inner_.prepare_table(stored); }
  Tensor upload(const float* values, int64_t n) override { return inner_.upload(values, n); }
  bool supports(const Op& op) const override { return inner_.supports(op); }
  void begin(const Step& step) override;
  void run(const Op& op) override;
  void end() override;
  void submit() override;
  void wait() override { inner_.wait(); }
  bool works_alone() const override { return inner_.works_alone(); }
  bool needs_all_rows() const override { return watching_ || !runs_.empty(); }
  void download(void* host, const Tensor& tensor) override { inner_.download(host, tensor); }
  const Peak* watch_peaks(const Tensor& logits) override { return inner_.watch_peaks(logits); }
  void give_masks(Masks masks) override { inner_.give_masks(masks); }
  const Score* watched_scores() const override { return inner_.watched_scores(); }

 private:
  struct Prepared { StoredWeight stored; const std::byte* packed; };
  void add_low_rank(const Matmul& op);

  Backend& inner_;
  std::unordered_map<std::string, std::vector<Prepared>> by_name_;     // Hugging Face's; several where a tensor fuses projections
  std::unordered_set<const std::byte*> targets_;                       // packed data of weights that rows of tokens are multiplied by
  std::vector<Run> runs_;
  Tensor low_, delta_;                                                 // [max_tokens, kMaxRank], [max_tokens, outputs of the widest target]
  int64_t widest_ = 0;
  int n_tokens_ = 0;
  bool watching_ = false;
};

}  // namespace ridge
