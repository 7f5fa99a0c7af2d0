#include "cli/random_weights.h"

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "base/error.h"

namespace ridge {
namespace {

uint64_t mixed(uint64_t x) {                           // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t hash_of(std::string_view text) {              // FNV-1a
  uint64_t h = 0xcbf29ce484222325;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3;
  return h;
}

void fill_gaussian(std::vector<float>& out, uint64_t seed, float deviation) {
  for (size_t i = 0; i + 1 < out.size(); i += 2) {     // Box and Muller
    const uint64_t r = mixed(seed + i);
    const double u = (double(r >> 32) + 1) / 4294967297.0, angle = 2 * std::numbers::pi * double(uint32_t(r)) / 4294967296.0;
    const double radius = std::sqrt(-2 * std::log(u)) * deviation;
    out[i] = float(radius * std::cos(angle));
    out[i + 1] = float(radius * std::sin(angle));
  }
}

float deviation_of(int64_t cols) { return 1.0f / std::sqrt(float(cols)); }

// They keep the deviation in the tensor's own scale, where block scales (nvfp4) or codes (fp8) have their full precision.
bool has_tensor_scale(FormatId id) { return id == FormatId::nvfp4 || id == FormatId::fp8_e4m3; }

FormatId format_for(FormatId wanted, int64_t cols) { return cols % format(wanted).block_elems == 0 ? wanted : FormatId::q8_0; }

}  // namespace

// Anonymous pages, so that giving them back is one call.
struct RandomWeights::Memory {
  std::byte* data = nullptr;
  size_t size = 0;
  explicit Memory(size_t n) : size(n) {
    void* p = ::mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data = static_cast<std::byte*>(p);
  }
  ~Memory() { ::munmap(data, size); }
};

RandomWeights::RandomWeights(const BenchShape& shape, FormatId id) {
  if (!format(id).writable) fail("--format {}: cannot be made; use f32, f16, bf16, fp8, q8_0, q4_0, q4_1, q6_k, nvfp4 or mxfp4", format(id).name);
  for (const ShapeTensor& t : tensors_of(shape)) {
    TensorInfo info{.name = t.name, .stored_name = t.name, .format = t.rows == 0 ? FormatId::f32 : t.plain ? FormatId::bf16 : format_for(id, t.cols), .shape = {t.cols}, .bytes = 0, .file = "(random)"};
    if (t.rows > 0) info.shape = {t.rows, t.cols};
    info.bytes = uint64_t(std::max<int64_t>(t.rows, 1) * row_bytes(info.format, t.cols));
    by_name_[t.name] = infos_.size();
    infos_.push_back(std::move(info));
  }
  memory_.resize(infos_.size());
}

RandomWeights::~RandomWeights() = default;

bool RandomWeights::has(std::string_view name) const { return by_name_.find(name) != by_name_.end(); }

const std::vector<std::byte>& RandomWeights::pool(FormatId id, int64_t cols) const {
  auto& bytes = pools_[{id, cols}];
  if (!bytes.empty()) return bytes;
  const int64_t n = (cols * 64 + (1 << 19)) / 256 * 256;               // at least 64 rows' worth
  std::vector<float> numbers(static_cast<size_t>(n));
  fill_gaussian(numbers, mixed(uint64_t(id) * 1000003 + uint64_t(cols)), has_tensor_scale(id) ? 1.0f : deviation_of(cols));
  bytes.resize(size_t(row_bytes(id, n)));
  format(id).encode_row(bytes.data(), numbers.data(), n);
  return bytes;
}

const RandomWeights::Memory& RandomWeights::made(size_t index) const {
  if (memory_[index]) return *memory_[index];
  const TensorInfo& info = infos_[index];
  auto memory = std::make_unique<Memory>(info.bytes);
  if (info.shape.size() == 1) {
    const bool bias = info.name.ends_with(".bias");
    for (int64_t i = 0; i < info.shape[0]; ++i) reinterpret_cast<float*>(memory->data)[i] = bias ? 0.0f : 1.0f;
  } else {
    const int64_t rows = info.shape[0], cols = info.shape[1], stride = row_bytes(info.format, cols);
    const auto& from = pool(info.format, cols);
    const int64_t block = format(info.format).block_bytes, n_places = (int64_t(from.size()) - stride) / block + 1;
    const uint64_t seed = hash_of(info.name);
    for (int64_t r = 0; r < rows; ++r) std::memcpy(memory->data + r * stride, from.data() + int64_t(mixed(seed + uint64_t(r)) % uint64_t(n_places)) * block, size_t(stride));
  }
  memory_[index] = std::move(memory);
  return *memory_[index];
}

StoredWeight RandomWeights::get(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) fail("the shape has no tensor '{}'", name);
  const TensorInfo& info = infos_[found->second];
  const Memory& memory = made(found->second);
  StoredWeight w{.name = info.name, .format = info.format};
  w.rows = info.shape.size() == 1 ? 1 : info.shape[0];
  w.cols = info.shape.back();
  w.codes = view(memory.data, info.format, w.rows, w.cols);
  if (has_tensor_scale(info.format)) w.scale = deviation_of(w.cols);
  return w;
}

void RandomWeights::release_packed() const {
  for (size_t i = 0; i < memory_.size(); ++i)
    if (memory_[i] && infos_[i].shape.size() > 1 && infos_[i].name.find("embed") == std::string::npos) memory_[i].reset();
}

Checkpoint random_checkpoint(const BenchShape& shape, FormatId id) {
  Checkpoint c{.path = "(random)", .name = fmt::format("{} {} (random, {} layers)", shape.name, format(id).name, shape.n_layers), .config = config_of(shape), .generation_config = Json::object(), .metadata = Json::object()};
  c.weights = std::make_unique<RandomWeights>(shape, id);
  c.tokenizer_config = Json::object();
  return c;
}

}  // namespace ridge
