#include "backend/op.h"

#include <algorithm>

#include "backend/step.h"

namespace ridge {
namespace {

template <class... F> struct Match : F... { using F::operator()...; };
template <class... F> Match(F...) -> Match<F...>;

// Positions that the query rows of a step read from KV, each sequence's once (rows of a sequence share what they read).
int64_t kv_positions_read(const Step& step, int window) {
  int64_t n = 0;
  for (const StepSeq& s : step.seqs()) {
    const int64_t seen = window > 0 ? std::min<int64_t>(s.n_context, window + s.n_rows - 1) : s.n_context;
    n += seen;
  }
  return n;
}

int64_t query_key_pairs(const Step& step, int window) {
  int64_t n = 0;
  for (const int32_t p : step.positions()) n += window > 0 ? std::min(p + 1, window) : p + 1;
  return n;
}

int64_t plane_bytes(const KvRef& kv) {
  int64_t n = 0;
  for (const KvPlane& p : kv.planes) n += row_bytes(p.format, int64_t{p.n_heads} * p.head_dim);
  return n;
}

}  // namespace

std::string_view name_of(const Op& op) {
  static constexpr std::array<std::string_view, std::variant_size_v<Op>> kNames = {
      "embed", "add_norm", "head_norm", "matmul", "rope_angles", "rope_store", "paged_attention", "activate", "gather_rows", "scale_cap"};
  return kNames[op.index()];
}

Traffic traffic_of(const Op& op, const Step& step) {
  const auto activations = [](std::initializer_list<const Tensor*> tensors) {
    int64_t n = 0;
    for (const Tensor* t : tensors)
      if (*t) n += t->bytes();
    return Traffic{.activation_bytes = n};
  };
  return std::visit(
      Match{
          [&](const Embed& o) {
            Traffic t = activations({&o.out});
            t.weight_bytes = o.out.rows * row_bytes(o.table->format, o.table->cols);
            return t;
          },
          [&](const AddNorm& o) { return activations({&o.out, &o.x, &o.pending, &o.weight}); },
          [&](const HeadNorm& o) { return activations({&o.x, &o.x}); },
          [&](const Matmul& o) {
            Traffic t = activations({&o.x, &o.out[0], &o.out[1], &o.out[2]});
            for (const Weight* w : o.w)
              if (w) {
                t.weight_bytes += w->bytes;
                t.flops += 2.0 * double(w->rows) * double(w->cols) * double(o.x.rows);
              }
            return t;
          },
          [&](const RopeAngles& o) { return activations({&o.angles}); },
          [&](const RopeStore& o) {
            Traffic t = activations({&o.q, &o.q, &o.k, &o.v, &o.angles});
            t.kv_bytes = step.n_tokens() * plane_bytes(o.kv);
            return t;
          },
          [&](const PagedAttention& o) {
            Traffic t = activations({&o.q, &o.out});
            t.kv_bytes = kv_positions_read(step, o.window) * plane_bytes(o.kv);
            t.flops = 2.0 * double(query_key_pairs(step, o.window)) * o.n_heads * (o.head_dim + o.v_dim);
            return t;
          },
          [&](const Activate& o) { return activations({&o.out, &o.gate, &o.up}); },
          [&](const GatherRows& o) { return activations({&o.out, &o.out}); },
          [&](const ScaleCap& o) { return activations({&o.x, &o.x}); },
      },
      op);
}

}  // namespace ridge
