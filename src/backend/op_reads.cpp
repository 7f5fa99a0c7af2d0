#include "backend/op_reads.h"

#include <algorithm>
#include <array>
#include <vector>

namespace ridge {
namespace {

const std::byte* end_of(const Tensor& t) { return t.data + t.rows * t.stride; }
bool overlap(const Tensor& a, const Tensor& b) { return a.data && b.data && a.data < end_of(b) && b.data < end_of(a); }
// All of b is in a, which has no gaps.
bool covers(const Tensor& a, const Tensor& b) { return a.data && b.data && a.stride == row_bytes(a.format, a.cols) && a.data <= b.data && end_of(a) >= end_of(b); }

struct Touched { std::array<Tensor, 3> reads{}, writes{}; bool all = false; };      // all: not known, it might be anything
Touched touched_by(const Embed& o) { return {{o.add ? o.out : Tensor{}}, {o.out}}; }
Touched touched_by(const AddNorm& o) { return {{o.x, o.pending}, {o.out, o.x}}; }
Touched touched_by(const Matmul& o) { return {{o.x}, o.out}; }
Touched touched_by(const PagedAttention& o) { return {{o.q}, {o.out}, bool(o.selected)}; }
Touched touched_by(const HeadNorm& o) { return {{o.x}, {o.x}}; }
Touched touched_by(const AddScaled& o) { return {{o.x, o.y}, {o.x}}; }
Touched touched_by(const ScaleByPosition& o) { return {{o.x}, {o.x}}; }
Touched touched_by(const RopeStore& o) { return {{o.q, o.k, o.v}, {o.q, o.k}}; }
Touched touched_by(const Activate& o) { return {{o.gate, o.up}, {o.out}}; }
Touched touched_by(const GatherRows& o) { return {{o.x, o.pending}, {o.out}}; }
Touched touched_by(const ScaleCap& o) { return {{o.x}, {o.x}}; }
Touched touched_by(const RopeAngles& o) { return {{}, {o.angles}}; }
template <class Other> Touched touched_by(const Other&) { return {.all = true}; }

}  // namespace

bool is_read_from(std::span<const Op> ops, size_t first, const Tensor& t) {
  std::vector<Tensor> anew;                                                  // in the tensor's place
  for (const Op& op : ops.subspan(std::min(first, ops.size()))) {
    const Touched touched = std::visit([](const auto& o) { return touched_by(o); }, op);
    if (touched.all) return true;
    for (const Tensor& read : touched.reads)
      if (overlap(read, t) && std::none_of(anew.begin(), anew.end(), [&](const Tensor& w) { return covers(w, read); })) return true;
    for (const Tensor& written : touched.writes) {
      if (covers(written, t)) return false;
      if (overlap(written, t)) anew.push_back(written);
    }
  }
  return false;
}

}  // namespace ridge
