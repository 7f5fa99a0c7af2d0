#include "cuda/lowering.h"

#include <algorithm>
#include <bit>
#include <string>

#include "backend/op_reads.h"
#include "base/check.h"
#include "cuda/kernels/matmul/gemm.h"
#include "cuda/phases.h"

namespace ridge::cuda {
namespace {

class Lowering {
 public:
  Lowering(const std::vector<Op>& ops, const Launch& launch) : ops_(ops), launch_(launch) {}

  void run(const std::function<void(size_t, size_t)>& after_each) {
    for (size_t i = 0, n; i < ops_.size(); i += n) {
      launch_.mark.op = int32_t(i);
      if (!at<Matmul>(i) && !at<AddNorm>(i)) phased_.flush(launch_);          // these do it themselves, unless they are of few tokens
      n = std::visit([&](const auto& op) { return emit(op, i); }, ops_[i]);
      if (after_each) phased_.flush(launch_), after_each(i, n);
    }
    phased_.flush(launch_);
  }

 private:
  template <class T>
  const T* at(size_t i) const { return i < ops_.size() ? std::get_if<T>(&ops_[i]) : nullptr; }

  // Each launches the op at i, with those after it that go along, and says how many that were.
  template <class Other>
  size_t emit(const Other& op, size_t) { check_failed(__FILE__, __LINE__, "no CUDA kernel for the op", std::string(name_of(op))); }
  size_t emit(const Embed& op, size_t) { return embed(op, launch_), 1; }
  size_t emit(const RopeAngles& op, size_t) { return rope_angles(op, launch_), 1; }
  size_t emit(const PagedAttention& op, size_t i) {
    if (batch_attention_takes(op, launch_)) return batch_attention(op, input_after(op.out, i), launch_), 1;
    if (decode_attention_takes(op, launch_)) return decode_attention(op, input_after(op.out, i), launch_), 1;
    const Tiles tiles = attention_tiles(op, launch_) ? tiles_of(op.out, i, launch_.matmul_scratch) : Tiles{};
    PagedAttention as_it_lies = op;
    if (rounded_ == op.q.data) as_it_lies.q.format = op.kv.planes[0].format;
    rounded_ = nullptr;
    paged_attention(as_it_lies, tiles, launch_);
    return 1;
  }
  size_t emit(const AddScaled& op, size_t) { return add_scaled(op, launch_), 1; }
  size_t emit(const ScaleByPosition& op, size_t) { return scale_by_position(op, launch_), 1; }
  size_t emit(const Activate& op, size_t) { return activate(op, launch_), 1; }
  size_t emit(const GatherRows& op, size_t) { return gather_rows(op, launch_), 1; }
  size_t emit(const ScaleCap& op, size_t) { return scale_cap(op, launch_), 1; }
  size_t emit(const RopeStore& op, size_t i) { return emit_rope(op, nullptr, nullptr, i); }

  size_t emit(const HeadNorm& op, size_t i) {
    const auto* second = at<HeadNorm>(i + 1);
    const auto* rope = at<RopeStore>(second ? i + 2 : i + 1);
    const auto norms = [&](const HeadNorm& n, const Tensor& x, int n_heads) {
      return n.kind == NormKind::rms && n.weight && !n.bias && n.x.data == x.data && n.n_heads == n_heads && n.x.cols == n_heads * rope->head_dim;
    };
    if (rope && norms(op, rope->q, rope->n_heads) && (!second || norms(*second, rope->k, rope->n_kv_heads))) {
      const size_t n_norms = second ? 2 : 1;
      return n_norms + emit_rope(*rope, &op, second, i + n_norms);
    }
    return head_norm(op, launch_), 1;
  }

  size_t emit_rope(const RopeStore& op, const HeadNorm* q_norm, const HeadNorm* k_norm, size_t i) {
    const auto* a = at<PagedAttention>(i + 1);
    const bool joined = a && op.k && a->q.data == op.q.data && a->q.rows == op.q.rows && a->n_heads == op.n_heads && a->n_kv_heads == op.n_kv_heads && a->head_dim == op.head_dim &&
                        a->kv.base == op.kv.base && a->kv.offsets == op.kv.offsets && a->kv.group == op.kv.group;
    if (joined && batch_attention_rotates(*a, op, launch_)) return batch_attention(*a, op, q_norm, k_norm, input_after(a->out, i + 1), launch_), 2;
    // Every block for itself, and every row for all that its sequence has in this step. (9 and 10 rows, each of a sequence: 10,185 and 11,240 tokens/s of 9,885 and 10,557 with a kernel before.)
    const int64_t most_joined = launch_.single_rows ? 2 * kFewTokens : kFewTokens;
    if (joined && a->q.rows <= most_joined && decode_attention_takes(*a, launch_)) return decode_attention(*a, op, q_norm, k_norm, input_after(a->out, i + 1), launch_), 2;
    // Attention of many rows alone (attention_tiles) takes rounded queries.
    const bool rounds = a && a->q.data == op.q.data && a->q.rows == op.q.rows && a->q.stride == op.q.stride && a->n_heads == op.n_heads && a->head_dim == op.head_dim &&
                        a->kv.planes[0].format == op.kv.planes[0].format && attention_tiles(*a, launch_) && rope_rounds_queries(op, launch_) && !is_read_from(ops_, i + 2, op.q);
    rope_store(op, q_norm, k_norm, rounds, launch_);
    if (rounds) rounded_ = op.q.data;
    return 1;
  }

  size_t emit(const AddNorm& op, size_t i) {
    AddNorm rest = op;
    if (added_ == &op) rest.pending = {};                                    // the matmul before has done it
    if (const Matmul* m = takes_factor(op, i)) return emit_without_factor(rest, *m, i, ahead_ == &op);
    phased_.flush(launch_);
    const Tiles tiles = tiles_of(op.out, i, launch_.matmul_scratch);
    add_norm(rest, {.tiles = tiles, .lanes = lanes_of(op.out, i, launch_.matmul_scratch)}, launch_);
    return 1;
  }

  // The matmul that takes a norm's out, and alone, if it is one that multiplies its sums with the norm's factor: then the norm leaves that to it, whatever the number of rows, for the one is rounded
  // otherwise than the other.
  const Matmul* takes_factor(const AddNorm& norm, size_t i) const {
    const Matmul* m = only_feeds(norm.out, i);
    if (!m || norm.kind != NormKind::rms || norm.bias || norm.x.cols % 64 > 0 || norm.x.cols > kMostScaledCols) return nullptr;
    return std::any_of(m->w.begin(), m->w.end(), [](const Weight* w) { return w && w->arithmetic.x == FormatId::f32; }) ? nullptr : m;
  }
  // is_ahead: the matmul before has done it.
  size_t emit_without_factor(AddNorm norm, const Matmul& op, size_t i, bool is_ahead) {
    if (takes_few_tokens(op, launch_)) {
      if (norm.pending) {
        phased_.flush(launch_);
        add_scaled({.x = norm.x, .y = norm.pending, .scale = norm.pending_scale}, launch_);
        norm.pending = {};
      }
      return 1 + emit_few(op, i + 1, &norm);
    }
    phased_.flush(launch_);
    if (takes_several_tokens(op, launch_)) {
      if (!is_ahead) add_norm(norm, {.lanes = lanes_for(op, launch_.scaled), .squares = {launch_.tile_squares, int(norm.x.cols)}}, launch_);
      return 1 + emit_few(op, i + 1, &norm);
    }
    add_norm(norm, {.tiles = tiles_of(norm.out, i, launch_.matmul_scratch), .factors = launch_.factors}, launch_);
    scaled_for_ = &op;
    return 1;
  }

  size_t emit(const Matmul& op, size_t i) {
    if (takes_few_tokens(op, launch_)) return emit_few(op, i, nullptr);
    phased_.flush(launch_);
    if (takes_several_tokens(op, launch_)) return emit_few(op, i, nullptr);
    std::byte* tiles = tiled_ == op.x.data ? tiles_ : as_before(op, i) && gemm_takes_tiles(op, launch_) ? launch_.matmul_scratch : nullptr;
    tiled_ = nullptr;
    const float* const factors = scaled_for_ == &op ? launch_.factors : nullptr;
    const auto* act = at<Activate>(i + 1);
    const auto* fed = act ? only_feeds(act->out, i + 1) : nullptr;
    if (fed && gemm_activates(op, *act, *fed, launch_)) {
      gemm_activate(tiles_of(act->out, i + 1, launch_.activated).data, op, act->kind, tiles ? tiles : launch_.matmul_scratch, tiles != nullptr, factors, launch_);
      return 2;
    }
    const auto* next = at<AddNorm>(i + 1);
    const bool adds = next && is_pending_of(*next, op) && next->pending_scale == 1.0f && next->x.rows == op.x.rows && next->x.stride == op.out[0].stride && gemm_takes(op, launch_) &&
                      !is_read_from(ops_, i + 2, op.out[0]);
    if (adds) added_ = next;
    return matmul(op, tiles, factors, adds ? next : nullptr, launch_), 1;
  }

  // Whether all that a matmul makes is what a norm adds to its x.
  static bool is_pending_of(const AddNorm& norm, const Matmul& op) {
    return op.w[0] && !op.w[1] && !op.w[2] && norm.pending && norm.pending.data == op.out[0].data && norm.x.cols == op.w[0]->rows;
  }

  // Where the op after i is a matmul of many tokens over `t`, and no other op reads it, `t` is left in `data`, as that matmul wants it.
  Tiles tiles_of(const Tensor& t, size_t i, std::byte* data) {
    const Matmul* m = only_feeds(t, i);
    if (!m || !gemm_takes_tiles(*m, launch_)) return {};
    tiled_ = t.data, tiles_ = data;
    return tiles_for(*m, data);
  }
  // The same with one of several tokens: then `t` is left in `data`, as that matmul wants it.
  Lanes lanes_of(const Tensor& t, size_t i, std::byte* data) {
    const Matmul* m = only_feeds(t, i);
    if (!m || t.cols % 64 > 0 || takes_few_tokens(*m, launch_) || !takes_several_tokens(*m, launch_)) return {};
    in_lanes_ = t.data, lanes_ = data;
    return lanes_for(*m, data);
  }
  // Either, for what writes row after row: a tile of many tokens is lanes in rows.
  Lanes input_after(const Tensor& t, size_t i) {
    if (t.rows <= kTileTokens && t.cols % 64 == 0)
      if (const Tiles tiles = tiles_of(t, i, launch_.matmul_scratch)) return {.data = tiles.data, .n_groups = kTileTokens / 8, .halves = tiles.halves, .rows = true};
    return lanes_of(t, i, launch_.matmul_scratch);
  }
  const Matmul* only_feeds(const Tensor& t, size_t i) const {
    const auto* m = at<Matmul>(i + 1);
    return m && m->x.data == t.data && m->x.rows == t.rows && m->x.cols == t.cols && !is_read_from(ops_, i + 2, t) ? m : nullptr;
  }

  // Whether the op before is a matmul over the same input that had to copy it to matmul_scratch, in the form that this one wants, too. (Where others had written it there, nobody else reads it.)
  bool as_before(const Matmul& op, size_t i) const {
    const auto* m = i > 0 ? at<Matmul>(i - 1) : nullptr;
    const auto overwritten = [&](const Tensor& out) { return out.data == op.x.data; };
    if (!m || m->x.data != op.x.data || m->x.rows != op.x.rows || m->x.cols != op.x.cols || std::any_of(m->out.begin(), m->out.end(), overwritten)) return false;
    if (takes_few_tokens(*m, launch_)) return false;
    if (takes_several_tokens(op, launch_)) return takes_several_tokens(*m, launch_) && lanes_for(*m, nullptr) == lanes_for(op, nullptr);
    return gemm_takes_tiles(*m, launch_) && tiles_for(*m, nullptr) == tiles_for(op, nullptr);
  }

  // With what goes along, where the tokens are few or several.
  size_t emit_few(const Matmul& op, size_t i, const AddNorm* norm) {
    Around around;
    if (norm) around.norm = *norm;
    const bool few = takes_few_tokens(op, launch_);
    if (norm) around.x_lanes = launch_.scaled;
    else if (in_lanes_ == op.x.data) around.x_lanes = lanes_;
    else if (!few && as_before(op, i)) around.x_lanes = launch_.matmul_scratch;
    in_lanes_ = nullptr;
    if (few && !norm && activated_for_ == i && activated_ == op.x.data) around.x_bf16 = launch_.activated;
    size_t n_done = 1;
    const bool two = op.w[0] && op.w[1] && !op.w[2];
    const auto* act = at<Activate>(i + 1);
    const auto* next_norm = at<AddNorm>(i + 1);
    if (two && act && act->gate.data == op.out[0].data && act->up.data == op.out[1].data && act->out.cols == op.w[0]->rows && op.w[0]->rows == op.w[1]->rows && act->kind <= ActKind::relu) {
      around.activate = act;
      n_done = 2;
      if (few && act->out.cols % 64 == 0 && act->out.cols * 2 * op.x.rows <= launch_.activated_bytes) around.bf16_out = launch_.activated, activated_ = act->out.data, activated_for_ = i + 2;
      if (!few) around.out_lanes = lanes_of(act->out, i + 1, launch_.activated);
    } else if (next_norm && is_pending_of(*next_norm, op) && !(norm && norm->x.data == next_norm->x.data)) {
      around.residual = added_ = next_norm;
      const Matmul* const next = few || norm ? nullptr : takes_factor(*next_norm, i + 1);      // with a norm before it is `scaled` that is read
      if (next && !takes_few_tokens(*next, launch_) && takes_several_tokens(*next, launch_)) around.next_lanes = lanes_for(*next, launch_.scaled), ahead_ = next_norm;
    }
    if (!few) return matmul_several_tokens(op, around, launch_), n_done;
    phased_.add(op, around, launch_);
    return n_done;
  }

  const std::vector<Op>& ops_;
  Launch launch_;
  const AddNorm* added_ = nullptr;           // whose addition is done
  const AddNorm* ahead_ = nullptr;           // that is done altogether
  const Matmul* scaled_for_ = nullptr;       // whose factors are launch_.factors
  const std::byte* activated_ = nullptr;     // the tensor that launch_.activated holds in bf16 for the op at activated_for_
  size_t activated_for_ = 0;
  const std::byte* tiled_ = nullptr;         // the tensor that tiles_ holds for the matmul that comes next
  std::byte* tiles_ = nullptr;
  const std::byte* in_lanes_ = nullptr;      // the same for several tokens
  std::byte* lanes_ = nullptr;
  PhasedMatmuls phased_;                     // those of few tokens
  const std::byte* rounded_ = nullptr;       // queries that lie there in the format of K, for the attention that comes next
};

// The forms of the ops that the kernels know: those of the dense families.
struct Supports {
  bool operator()(const Embed&) const { return true; }
  bool operator()(const AddNorm& o) const { return o.kind != NormKind::l2 && o.x.cols <= 16384; }       // what a block of threads holds
  bool operator()(const HeadNorm& o) const { return o.kind != NormKind::l2; }
  bool operator()(const AddScaled&) const { return true; }
  bool operator()(const ScaleByPosition&) const { return true; }
  bool operator()(const Matmul&) const { return true; }
  bool operator()(const RopeAngles&) const { return true; }
  // Queries alone, or queries with keys and values; the angles are those of the dimensions that rotate and no others.
  bool operator()(const RopeStore& o) const {
    return bool(o.k) == bool(o.v) && o.rot_first == 0 && !o.back && (!o.angles || o.angles.cols == o.n_rot) && std::max(o.head_dim, o.v_dim) <= 1024;
  }
  bool operator()(const PagedAttention& o) const { return paged_attention_supports(o); }
  bool operator()(const Activate& o) const { return (o.kind <= ActKind::relu2 || o.kind == ActKind::sigmoid) && o.limit == 0 && o.gate.cols == o.out.cols; }
  bool operator()(const GatherRows&) const { return true; }
  bool operator()(const ScaleCap&) const { return true; }
  template <class Other> bool operator()(const Other&) const { return false; }
};

// All that a launch is made of: two ops that mix alike are launched alike.
class Mixer {
 public:
  void operator()(const Embed& o) { mix(o.out, o.table->packed.data, o.scale, o.by_position, o.add); }
  void operator()(const AddNorm& o) { mix(o.out, o.x, o.pending, o.pending_scale, o.weight, o.bias, o.eps, o.weight_offset, int(o.kind)); }
  void operator()(const HeadNorm& o) { mix(o.x, o.weight, o.n_heads, o.eps, o.weight_offset, o.bias, int(o.kind)); }
  void operator()(const AddScaled& o) { mix(o.x, o.y, o.scale); }
  void operator()(const ScaleByPosition& o) { mix(o.x, o.factor, o.floor_scale, o.offset); }
  void operator()(const Matmul& o) {
    mix(o.x);
    for (int i = 0; i < 3; ++i) mix(o.out[i], o.w[i] ? o.w[i]->packed.data : nullptr, o.bias[i]);
  }
  void operator()(const RopeAngles& o) { mix(o.angles, o.rope); }
  void operator()(const RopeStore& o) { mix(o.q, o.k, o.v, o.angles, o.n_heads, o.n_kv_heads, o.head_dim, o.v_dim, o.n_rot, int(o.style), o.kv); }
  void operator()(const PagedAttention& o) { mix(o.out, o.q, o.kv, o.n_heads, o.n_kv_heads, o.head_dim, o.v_dim, o.scale, o.window, o.softcap, o.sinks, o.chunk); }
  void operator()(const Activate& o) { mix(o.out, o.gate, o.up, int(o.kind)); }
  void operator()(const GatherRows& o) { mix(o.out, o.x, o.pending, o.pending_scale); }
  void operator()(const ScaleCap& o) { mix(o.x, o.scale, o.cap); }
  template <class Other> void operator()(const Other&) {}

  template <class... Args> void mix(const Args&... args) { (add(args), ...); }
  uint64_t value = 0x9E3779B97F4A7C15ull;

 private:
  void add(const Tensor& t) { mix(t.data, t.rows, t.cols, t.stride); }
  void add(const KvRef& kv) { mix(kv.base, kv.page_bytes, kv.offsets[0], kv.offsets[1], int(kv.planes[0].format), int(kv.planes[1].format), kv.group, kv.page_size); }
  void add(float v) { add(int64_t{std::bit_cast<uint32_t>(v)}); }
  void add(const void* p) { add(int64_t(reinterpret_cast<uintptr_t>(p))); }
  void add(int v) { add(int64_t{v}); }
  void add(int64_t v) { value = (value ^ uint64_t(v)) * 0xBF58476D1CE4E5B9ull, value ^= value >> 29; }
};

}  // namespace

bool supports(const Op& op) { return std::visit(Supports{}, op); }

void launch_all(const std::vector<Op>& ops, const Launch& launch, const std::function<void(size_t first, size_t n)>& after_each) { Lowering(ops, launch).run(after_each); }

uint64_t fingerprint(const std::vector<Op>& ops) {
  Mixer mixer;
  for (const Op& op : ops) {
    mixer.mix(int(op.index()));
    std::visit(mixer, op);
  }
  return mixer.value;
}

}  // namespace ridge::cuda
