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
  for (const KvPlane& p : kv.planes) n += entry_bytes(p) / p.every;
  return n;
}

// Rows that select entries read each their own; otherwise the rows of a sequence share what they read.
Traffic attention_traffic(const PagedAttention& o, const Step& step) {
  Traffic t{.activation_bytes = o.q.bytes() + o.out.bytes()};
  const double pair_flops = 2.0 * o.n_heads * (o.head_dim + o.v_dim);
  const auto selected = [&](int every) {
    int64_t n = 0;
    for (const int32_t p : step.positions()) n += std::min<int64_t>((p + 1) / every, o.selected.cols);
    return n;
  };
  if (o.entries.base) {
    const int every = o.entries.planes[0].every;
    int64_t pairs = 0;
    for (const int32_t p : step.positions()) pairs += (p + 1) / every;
    if (o.selected) pairs = selected(every);
    t.kv_bytes = (o.selected ? pairs : kv_positions_read(step, 0) / every) * entry_bytes(o.entries.planes[0]);
    t.flops = pair_flops * double(pairs);
  }
  const bool all = !o.selected || o.entries.base;
  const int window = o.chunk > 0 && (o.window == 0 || o.chunk < o.window) ? o.chunk : o.window;         // at most
  t.kv_bytes += (all ? kv_positions_read(step, window) : selected(1)) * plane_bytes(o.kv);
  t.flops += pair_flops * double(all ? query_key_pairs(step, window) : selected(1));
  return t;
}

// Before the op has run nobody knows which experts are touched; the plan says it once the route has (on a device the host cannot read, all pairs count).
Traffic moe_traffic(const MoeMatmul& o) {
  Traffic t;
  const auto* first_rows = o.plan.row_as<const int32_t>(0);
  for (size_t i = 0; i < o.w.size(); ++i) {
    if (!o.w[i]) continue;
    for (int e = 0; e < o.n_experts; ++e) {
      const int64_t n_rows = first_rows[e + 1] - first_rows[e];
      if (n_rows > 0) t.weight_bytes += o.w[i][e]->bytes;
      t.flops += 2.0 * double(n_rows) * double(o.w[i][e]->rows) * double(o.w[i][e]->cols);
    }
    t.activation_bytes += first_rows[o.n_experts] * o.w[i][0]->rows * 4;
  }
  t.activation_bytes += o.x.bytes();
  return t;
}

// A sequence reads the states and entries of the pages it is in once, and writes its entries and the states of pages it begins.
Traffic scan_traffic(const LinearScan& o, const Step& step) {
  Traffic t;
  for (const Tensor* x : {&o.out, &o.q, &o.k, &o.v, &o.gate, &o.beta})
    if (*x) t.activation_bytes += x->bytes();
  const int64_t state = entry_bytes(o.kv.planes[0]), page = o.kv.planes[0].every;
  int64_t one = 0;
  for (int i = 1; i < kMaxKvPlanes; ++i) one += entry_bytes(o.kv.planes[size_t(i)]);
  for (const StepSeq& s : step.seqs()) {
    const int64_t first = s.n_context - s.n_rows, last = s.n_context - 1;
    const int64_t n_begun = last / page - (first > 0 ? (first - 1) / page : 0);
    t.kv_bytes += (last / page - first / page + 1 + 2 * n_begun) * state + (first % page + n_begun * page) * one + s.n_rows * one;
  }
  for (const int32_t p : step.positions()) t.flops += 2.0 * o.n_heads * o.dv * double(o.dk + p % page) * (o.write == ScanWrite::delta ? 2 : 1);
  return t;
}

}  // namespace

std::string_view name_of(const Op& op) {
  static constexpr std::array<std::string_view, std::variant_size_v<Op>> kNames = {
      "embed", "add_norm", "head_norm", "add_scaled", "scale_by_position", "matmul", "head_matmul", "rope_angles", "rope_store", "paged_attention", "index_top_k", "compress_kv", "activate",
      "moe_route", "moe_matmul", "moe_combine", "short_conv", "linear_scan", "selective_scan", "hyper_enter", "hyper_leave", "gather_rows", "scale_cap"};
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
          [&](const AddScaled& o) { return activations({&o.x, &o.x, &o.y}); },
          [&](const ScaleByPosition& o) { return activations({&o.x, &o.x}); },
          [&](const HeadMatmul& o) {
            Traffic t = activations({&o.x, &o.out});
            for (int h = 0; h < o.n_heads; ++h) {
              t.weight_bytes += o.w[h]->bytes;
              t.flops += 2.0 * double(o.w[h]->rows) * double(o.w[h]->cols) * double(o.x.rows);
            }
            return t;
          },
          [&](const RopeAngles& o) { return activations({&o.angles}); },
          [&](const RopeStore& o) {
            Traffic t = activations({&o.q, &o.q, &o.k, &o.v, &o.angles});
            t.kv_bytes = step.n_tokens() * plane_bytes(o.kv);
            return t;
          },
          [&](const PagedAttention& o) { return attention_traffic(o, step); },
          [&](const Activate& o) { return activations({&o.out, &o.gate, &o.up}); },
          [&](const MoeRoute& o) { return activations({&o.logits, &o.chosen, &o.weights, &o.plan}); },
          [&](const MoeMatmul& o) { return moe_traffic(o); },
          [&](const ShortConv& o) {
            Traffic t = activations({&o.x, &o.out});
            t.weight_bytes = o.weight.bytes();
            t.kv_bytes = (step.n_tokens() + step.n_seqs() * (o.weight.rows - 1)) * o.x.cols * 4;
            t.flops = 2.0 * double(step.n_tokens()) * double(o.weight.rows * o.x.cols);
            return t;
          },
          [&](const LinearScan& o) { return scan_traffic(o, step); },
          [&](const SelectiveScan& o) {
            Traffic t = activations({&o.x, &o.gate, &o.out});
            t.weight_bytes = o.rate.bytes();
            t.kv_bytes = 2 * step.n_seqs() * entry_bytes(o.kv.planes[1]) + step.n_tokens() * (entry_bytes(o.kv.planes[2]) + entry_bytes(o.kv.planes[3]));
            t.flops = 6.0 * double(step.n_tokens()) * double(o.rate.rows * o.x.cols);
            return t;
          },
          [&](const MoeCombine& o) { return activations({&o.out, &o.y}); },
          [&](const IndexTopK& o) {
            Traffic t = activations({&o.q, &o.weights, &o.selected});
            t.kv_bytes = kv_positions_read(step, 0) * plane_bytes(o.kv);
            t.flops = 2.0 * double(query_key_pairs(step, 0)) / o.kv.planes[0].every * o.n_heads * o.head_dim;
            return t;
          },
          [&](const CompressKv& o) {
            Traffic t = activations({&o.x});
            t.kv_bytes = step.n_tokens() * (plane_bytes(o.inputs) * (o.overlap ? 3 : 2) + plane_bytes(o.entries));      // written, then read by the blocks it is part of
            return t;
          },
          [&](const HyperEnter& o) { return activations({&o.out, &o.x, &o.weights}); },
          [&](const HyperLeave& o) { return activations({&o.x, &o.x, &o.y, &o.weights}); },
          [&](const GatherRows& o) { return activations({&o.out, &o.out}); },
          [&](const ScaleCap& o) { return activations({&o.x, &o.x}); },
      },
      op);
}

}  // namespace ridge
