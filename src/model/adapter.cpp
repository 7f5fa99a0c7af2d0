#include "model/adapter.h"

#include <algorithm>
#include <cmath>

#include "backend/step.h"
#include "base/check.h"
#include "base/error.h"
#include "base/files.h"
#include "model/config.h"

namespace ridge {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

// Keys that would change what an adapter adds, and that are not supported.
void refuse_unsupported(const Config& config) {
  if (config.text_or("peft_type", "LORA") != "LORA") config.refuse("peft_type", "only LORA adapters can be loaded");
  config.refuse_unless("use_dora", false);
  config.refuse_unless("use_qalora", false);
  config.refuse_unless("lora_bias", false);
  config.refuse_unless("bias", "none");
  for (const char* key : {"modules_to_save", "alpha_pattern", "layer_replication", "trainable_token_indices"})
    if (const auto it = config.json().find(key); it != config.json().end() && !it->is_null() && !it->empty()) config.refuse(key, "it is not supported; merge the adapter into its model");
}

struct Half { std::string module; bool is_a; };

// base_model.model.<module>.lora_A.weight, in older files .lora_A.default.weight.
Half half_of(const std::string& tensor, const std::string& where) {
  for (const bool is_a : {true, false})
    for (const std::string_view end : {std::string_view(".weight"), std::string_view(".default.weight")}) {
      const std::string suffix = fmt::format(".lora_{}{}", is_a ? "A" : "B", end);
      if (tensor.starts_with(kPrefix) && tensor.ends_with(suffix)) return {tensor.substr(kPrefix.size(), tensor.size() - kPrefix.size() - suffix.size()), is_a};
    }
  fail("{}: tensor {} is none of a LoRA adapter's ({}<module>.lora_A.weight and .lora_B.weight)", where, tensor, kPrefix);
}

// The first output of the whole tensor that a part of it begins with; parts of a fused tensor lie where the file has them.
int64_t first_output(const StoredWeight& part, const StoredWeight& whole, const std::string& where) {
  const int64_t n_outputs = whole.transposed == part.transposed ? whole.rows : whole.cols;
  if (part.rows == n_outputs) return 0;
  const int64_t offset = part.codes.data - whole.codes.data, step = part.transposed ? row_bytes(whole.codes.format, 1) : whole.codes.stride;
  if (part.codes.stride != whole.codes.stride || offset < 0 || offset % step || offset / step + part.rows > n_outputs)
    fail("{}: {} fuses its projections head by head, and adapters for such a tensor are not supported; merge the adapter into its model", where, part.name);
  return offset / step;
}

}  // namespace

std::shared_ptr<const Adapter> AdaptedBackend::load(const std::string& name, const std::string& folder, const WeightFile& base, std::unique_ptr<Backend> memory) const {
  CHECK(knows_targets());
  const Json json = parse_json(read_file(folder + "/adapter_config.json"), folder + "/adapter_config.json");
  const std::string where = fmt::format("adapter '{}'", name);
  if (!json.is_object()) fail("{}: adapter_config.json is no object", where);
  const Config config(json, where);
  refuse_unsupported(config);
  const double alpha = config.number("lora_alpha", 0, 1e6);
  const bool by_root = config.flag_or("use_rslora", false);

  auto adapter = std::make_shared<Adapter>();
  adapter->name_ = name;
  adapter->path_ = folder;
  adapter->file_ = open_safetensors_file(folder + "/adapter_model.safetensors");
  adapter->memory_ = std::move(memory);
  std::unordered_map<std::string, std::pair<std::string, std::string>> halves;      // by module: tensors A and B
  for (const TensorInfo& tensor : adapter->file_->tensors()) {
    const Half half = half_of(tensor.name, where);
    (half.is_a ? halves[half.module].first : halves[half.module].second) = tensor.name;
  }
  if (halves.empty()) fail("{}: adapter_model.safetensors holds no tensors", where);

  for (const auto& [module, tensors] : halves) {
    const std::string base_name = module + ".weight";
    const auto found = by_name_.find(base_name);
    const auto is_target = [&](const Prepared& p) { return targets_.count(p.packed) > 0; };
    if (found == by_name_.end() || !std::all_of(found->second.begin(), found->second.end(), is_target))
      fail("{} has weights for {}, which is no matrix of this model that adapters can be added to", where, module);
    if (tensors.first.empty() || tensors.second.empty()) fail("{}: {} has lora_{} and no lora_{}", where, module, tensors.first.empty() ? "B" : "A", tensors.first.empty() ? "A" : "B");
    const StoredWeight a = adapter->file_->get(tensors.first), b = adapter->file_->get(tensors.second), whole = base.get(base_name);
    for (const StoredWeight* w : {&a, &b})
      if (format(w->format).block_elems != 1 || !format(w->format).readable) fail("{}: tensor {} is stored as {}; it must be f32, f16 or bf16", where, w->name, format(w->format).name);
    const Prepared& first = found->second.front();
    const int64_t n_outputs = whole.transposed == first.stored.transposed ? whole.rows : whole.cols, n_inputs = first.stored.cols, rank = a.rows;
    if (rank < 1 || rank > kMaxRank || b.cols != rank) fail("{}: {} has ranks {} (lora_A) and {} (lora_B): they must be equal and 1 to {}", where, module, rank, b.cols, kMaxRank);
    if (a.cols != n_inputs || b.rows != n_outputs)
      fail("{}: {} is for {} inputs and {} outputs, and this model's has {} and {}: the adapter is for another model", where, module, a.cols, b.rows, n_inputs, n_outputs);
    const float scale = float(alpha / (by_root ? std::sqrt(double(rank)) : double(rank)));
    for (const Prepared& part : found->second) {
      StoredWeight rows = b;
      rows.codes = b.codes.slice_rows(first_output(part.stored, whole, where), part.stored.rows);
      rows.rows = part.stored.rows;
      const auto& added = adapter->parts_[part.packed] = {adapter->memory_->prepare(a, {}), adapter->memory_->prepare(rows, {}), scale};
      adapter->bytes_ += added.a.bytes + added.b.bytes;
    }
    adapter->rank_ = std::max(adapter->rank_, int(rank));
  }
  return adapter;
}

Weight AdaptedBackend::prepare(const StoredWeight& stored, Arithmetic arithmetic) {
  const Weight weight = inner_.prepare(stored, arithmetic);
  by_name_[stored.name].push_back({stored, weight.packed.data});
  return weight;
}

void AdaptedBackend::make_scratch(int max_tokens) {
  low_ = inner_.allocate_f32(max_tokens, kMaxRank);
  delta_ = inner_.allocate_f32(max_tokens, widest_);
}

void AdaptedBackend::begin(const Step& step) {
  n_tokens_ = step.n_tokens();
  if (!watching_) inner_.begin(step);
}

void AdaptedBackend::end() {
  if (!watching_) inner_.end();
}

void AdaptedBackend::submit() {
  if (!watching_) inner_.submit();
}

void AdaptedBackend::run(const Op& op) {
  const auto* const matmul = std::get_if<Matmul>(&op);
  if (watching_) {
    if (matmul && matmul->x.rows == n_tokens_)
      for (const Weight* w : matmul->w)
        if (w) targets_.insert(w->packed.data), widest_ = std::max(widest_, w->rows);
    return;
  }
  inner_.run(op);
  if (matmul && !runs_.empty()) add_low_rank(*matmul);
}

void AdaptedBackend::add_low_rank(const Matmul& op) {
  for (size_t i = 0; i < op.w.size() && op.w[i]; ++i)
    for (const Run& run : runs_) {
      const Adapter::Part* const part = run.adapter->find(*op.w[i]);
      if (!part) continue;
      const Tensor low = low_.slice_rows(0, run.n_rows).slice_cols(0, part->a.rows), delta = delta_.slice_rows(0, run.n_rows).slice_cols(0, part->b.rows);
      inner_.run(Matmul{.out = {low}, .x = op.x.slice_rows(run.first_row, run.n_rows), .w = {&part->a}});
      inner_.run(Matmul{.out = {delta}, .x = low, .w = {&part->b}});
      inner_.run(AddScaled{.x = op.out[i].slice_rows(run.first_row, run.n_rows), .y = delta, .scale = part->scale});
    }
}

}  // namespace ridge
