// out[i] = x * w[i]^T (+ bias[i]): two candidates over the same tiles.
//
//   few    up to 8 tokens: every worker quantizes the tokens for itself and streams packed panels, prefetching ahead. Bound by the memory.
//   many   any number: tokens are quantized once for the team; a worker unpacks a panel (or two) into its scratch, where all tiles of tokens find it.
//
// The panels of all three weights are one row of work units that the workers draw from. Weights in f32 arithmetic need neither quantized tokens nor unpacked
// panels: both candidates run the same float tiles on them.
#include <type_traits>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/matmul_plan.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

// Cuts [token, last) into tiles of kMost tokens, and what is left into 4, 2 and 1: fn(integral_constant<T>, token).
template <int kMost, class Fn>
inline void for_tiles(int64_t token, int64_t last, Fn&& fn) {
  for (; last - token >= kMost; token += kMost) fn(std::integral_constant<int, kMost>{}, token);
  if constexpr (kMost > 4)
    if (last - token >= 4) fn(std::integral_constant<int, 4>{}, token), token += 4;
  if constexpr (kMost > 2)
    if (last - token >= 2) fn(std::integral_constant<int, 2>{}, token), token += 2;
  if (last - token >= 1) fn(std::integral_constant<int, 1>{}, token);
}

template <class Source, int P, int T, bool kStream>
[[gnu::noinline]] void run_int_tile(const Matmul& op, int i, const Bytes (&panels)[P], int64_t panel, int64_t token, const IntInput& x) {
  F acc[P][T];
  int_tile<Source, P, T, kStream>(acc, panels, superblocks_of(op.x.cols), x);
  finish<P, T>(acc, op, i, panel, token);
}

template <class Source, int P, int T, bool kStream>
[[gnu::noinline]] void run_float_tile(const Matmul& op, int i, const Bytes (&panels)[P], int64_t panel, int64_t token, Decode decode) {
  F acc[P][T];
  alignas(64) float tail[T * 64];
  const int64_t n = superblocks_of(op.x.cols), whole = op.x.cols / 64 * 64;
  if (whole != op.x.cols)
    for (int t = 0; t < T; ++t)
      for (int k = 0; k < 64; ++k) tail[64 * t + k] = whole + k < op.x.cols ? op.x.f32(token + t)[whole + k] : 0.0f;
  const FloatInput x{op.x.f32(token), op.x.stride / 4, whole != op.x.cols ? tail : nullptr};
  float_tile<Source, P, T, kStream>(acc, panels, n, superblock_bytes(panel_of(*op.w[i])), decode, x);
  finish<P, T>(acc, op, i, panel, token);
}

// Panels [first, last) of weight i, read as they are packed; x holds all tokens.
template <class Format>
void stream_int_panels(const Plan& plan, int i, int64_t first, int64_t last, const QuantizedTokens& x) {
  const Matmul& op = plan.op;
  const auto* data = reinterpret_cast<Bytes>(op.w[i]->packed.data);
  const int64_t panel_bytes = superblocks_of(op.x.cols) * superblock_bytes(Format::kPanel);
  const auto pass = [&]<int P>(std::integral_constant<int, P>, int64_t panel) {
    Bytes panels[P];
    for (int p = 0; p < P; ++p) panels[p] = data + (panel + p) * panel_bytes;
    for_tiles<P == 1 ? kFewTile : 4>(0, op.x.rows, [&](auto count, int64_t token) {
      run_int_tile<Packed<Format>, P, decltype(count)::value, true>(op, i, panels, panel, token, plan.input(x, token, i));
    });
  };
  int64_t panel = first;
  if constexpr (kFewPanels > 1)
    if (op.x.rows <= 4)
      for (; panel + kFewPanels <= last; panel += kFewPanels) pass(std::integral_constant<int, kFewPanels>{}, panel);
  for (; panel < last; ++panel) pass(std::integral_constant<int, 1>{}, panel);
}

// Panels [first, last) of weight i, kPanels at a time, unpacked into scratch; x holds tokens [token_first, token_last).
template <class Format>
void unpack_int_panels(const Plan& plan, int i, int64_t first, int64_t last, const QuantizedTokens& x, int64_t token_first, int64_t token_last, std::byte* scratch) {
  using Source = Unpacked<Format>;
  const Matmul& op = plan.op;
  const auto* data = reinterpret_cast<Bytes>(op.w[i]->packed.data);
  const int64_t n_superblocks = superblocks_of(op.x.cols), panel_bytes = n_superblocks * superblock_bytes(Format::kPanel);
  for (int64_t panel = first; panel < last; panel += kPanels) {
    Bytes panels[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      auto* unpacked = reinterpret_cast<uint8_t*>(scratch) + p * n_superblocks * Source::kBytes;
      panels[p] = panel + p < last ? unpacked : panels[0];              // an odd last panel is computed twice and stored once
      if (panel + p < last) unpack<Format>(unpacked, data + (panel + p) * panel_bytes, n_superblocks);
    }
    for_tiles<kTile>(token_first, token_last, [&](auto count, int64_t token) {
      run_int_tile<Source, kPanels, decltype(count)::value, false>(op, i, panels, panel, token, plan.input(x, token - token_first, i));
    });
  }
}

// One or two tokens take two panels at a time: one chain of dependent additions per output would leave the FMA units waiting.
constexpr int kFloatUnit = 2;

template <class Source>
void float_panels(const Plan& plan, int i, int64_t first, int64_t last, int64_t token_first, int64_t token_last, Decode decode) {
  const Matmul& op = plan.op;
  const auto* data = reinterpret_cast<Bytes>(op.w[i]->packed.data);
  const int64_t panel_bytes = superblocks_of(op.x.cols) * superblock_bytes(panel_of(*op.w[i]));
  for (int64_t panel = first; panel < last; panel += kFloatUnit) {
    const bool both = panel + 1 < last;
    const Bytes pair[kFloatUnit] = {data + panel * panel_bytes, data + (panel + 1) * panel_bytes};
    for_tiles<kFloatTile>(token_first, token_last, [&](auto count, int64_t token) {
      constexpr int T = decltype(count)::value;
      if constexpr (T <= 2 || kFloatPanels == kFloatUnit)
        if (both) return run_float_tile<Source, kFloatUnit, T, T <= 2>(op, i, pair, panel, token, decode);
      run_float_tile<Source, 1, T, T <= 2>(op, i, {pair[0]}, panel, token, decode);
      if (both) run_float_tile<Source, 1, T, T <= 2>(op, i, {pair[1]}, panel + 1, token, decode);
    });
  }
}

void float_weight_panels(const Plan& plan, int i, int64_t first, int64_t last, int64_t token_first, int64_t token_last) {
  with_format(*plan.op.w[i], [&](auto format) {
    using Format = decltype(format);
    if constexpr (Coded<Format>) float_panels<PanelF32>(plan, i, first, last, token_first, token_last, decode_superblock<Format>);
    else float_panels<Format>(plan, i, first, last, token_first, token_last, nullptr);
  });
}

// Panels are the work units of `few`; all but the ends of the workers' parts come two at a time.
constexpr int64_t kStreamGrain = 2;

// Where this worker's stream begins, and the first bytes of the next op's: memory is idle while the workers meet.
void note_start(const Plan& plan, Lane& lane) {
  if (!lane.hints.mine) return;
  const auto [first, last] = lane.part(plan.n_units(), kStreamGrain);
  StreamStart& start = lane.hints.mine[lane.worker];
  start = {};
  plan.for_panels(first, last, [&](int i, int64_t a, int64_t) {
    const Tensor& packed = plan.op.w[i]->packed;
    if (!start.at) start = {packed.row(a), packed.stride};
  });
}

void prefetch_next(const Lane& lane) {
  if (!lane.hints.next) return;
  const StreamStart& next = lane.hints.next[lane.worker];
  for (int64_t i = 0; next.at && i < kPrefetchAhead; i += 64)
    for (int p = 0; p < 2; ++p) prefetch(next.at + p * next.panel_bytes + i);
  lane.ahead->begin(next, kPrefetchAhead);
}

constexpr int64_t kMostFew = 8;

bool few_supports(const Matmul& op) { return op.x.rows <= kMostFew; }

void run_few(const Matmul& op, Lane& lane) {
  const Plan plan(op, 1);
  const QuantizedTokens x(lane.own.data(), op.x.cols, plan.n_planes);
  if (plan.n_planes > 0) {
    if (op.x.rows * x.stride() > static_cast<int64_t>(lane.own.size())) __builtin_trap();
    for (int64_t t = 0; t < op.x.rows; ++t) x.quantize(t, op.x.f32(t), plan.kinds);
  }
  note_start(plan, lane);
  lane.share_streams(plan.n_units(), kStreamGrain, 8, [&](int64_t first, int64_t last) {
    plan.for_panels(first, last, [&](int i, int64_t a, int64_t b) {
      if (!integer(*op.w[i])) return float_weight_panels(plan, i, a, b, 0, op.x.rows);
      with_format(*op.w[i], [&](auto format) {
        using Format = decltype(format);
        if constexpr (Coded<Format>) stream_int_panels<Format>(plan, i, a, b, x);
      });
    });
  });
  prefetch_next(lane);
}

bool many_supports(const Matmul&) { return true; }

void run_many(const Matmul& op, Lane& lane) {
  constexpr int kUnit = kPanels > kFloatUnit ? kPanels : kFloatUnit;
  sweep_many<kUnit, false>(op, lane, kPanels * superblocks_of(op.x.cols) * 1536, NoneBeside{}, [&](const Plan& plan, int i, int64_t a, int64_t b, const QuantizedTokens& x, int64_t first, int64_t last) {
    if (!integer(*op.w[i])) return float_weight_panels(plan, i, a, b, first, last);
    with_format(*op.w[i], [&](auto format) {
      using Format = decltype(format);
      if constexpr (Coded<Format>) unpack_int_panels<Format>(plan, i, a, b, x, first, last, lane.own.data());
    });
  });
}

}  // namespace

void matmul_panels(const Matmul& op, int i, int64_t first, int64_t last, const QuantizedTokens& x, std::byte* scratch) {
  const Plan plan(op, kFloatUnit);
  if (!integer(*op.w[i])) return float_weight_panels(plan, i, first, last, 0, op.x.rows);
  with_format(*op.w[i], [&](auto format) {
    using Format = decltype(format);
    if constexpr (Coded<Format>) {
      if (op.x.rows <= kMostFew) stream_int_panels<Format>(plan, i, first, last, x);
      else unpack_int_panels<Format>(plan, i, first, last, x, 0, op.x.rows, scratch);
    }
  });
}

// A weight for each slice of a row. A unit is up to 8 panels of one slice, for all tokens; who draws it quantizes that slice of the tokens for itself.
void head_matmul(const HeadMatmul& op, Lane& lane) {
  constexpr int64_t kUnit = 8;
  const int64_t n_in = op.x.cols / op.n_heads, n_out = op.out.cols / op.n_heads, n_panels = panels_of(op.w[0]->rows), n_units = (n_panels + kUnit - 1) / kUnit;
  lane.share(op.n_heads * n_units, 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t h = unit / n_units, first = unit % n_units * kUnit, last = first + kUnit < n_panels ? first + kUnit : n_panels;
      const Weight& w = *op.w[h];
      const Matmul one{.out = {op.out.slice_cols(h * n_out, w.rows)}, .x = op.x.slice_cols(h * n_in, w.cols), .w = {&w}};
      if (first == 0)
        for (int64_t t = 0; t < op.x.rows; ++t)
          for (int64_t i = 0; i < n_in - w.cols; ++i) op.out.f32(t)[h * n_out + w.rows + i] = op.x.f32(t)[h * n_in + w.cols + i];
      const Plan plan(one, kPanels);
      if (!integer(w)) {
        float_weight_panels(plan, 0, first, last, 0, op.x.rows);
        continue;
      }
      const int64_t unpacked = (kPanels * superblocks_of(w.cols) * 1536 + 63) / 64 * 64;
      const QuantizedTokens x(lane.own.data() + unpacked, w.cols, plan.n_planes);
      const int64_t fit = (static_cast<int64_t>(lane.own.size()) - unpacked) / x.stride();
      if (fit < 1) __builtin_trap();
      for (int64_t token = 0; token < op.x.rows; token += fit) {
        const int64_t n = op.x.rows - token < fit ? op.x.rows - token : fit;
        for (int64_t t = 0; t < n; ++t) x.quantize(t, one.x.f32(token + t), plan.kinds);
        with_format(w, [&](auto format) {
          using Format = decltype(format);
          if constexpr (Coded<Format>) unpack_int_panels<Format>(plan, 0, first, last, x, token, token + n, lane.own.data());
        });
      }
    }
  });
}

// The float epilogue per block bounds `many` and the matrix units alike; on Emerald Rapids AMX is ahead (0.9 TOP/s on two threads in a good hour of the machine,
// where `many` has 0.8).
std::span<const Kernel<Matmul, Lane>> matmul_kernels() {
  if constexpr (!kMatrixName.empty()) {
    static constexpr Kernel<Matmul, Lane> kCandidates[] = {{"few", few_supports, run_few}, {kMatrixName, matrix_supports, run_matrix}, {"many", many_supports, run_many}};
    return kCandidates;
  } else {
    static constexpr Kernel<Matmul, Lane> kCandidates[] = {{"few", few_supports, run_few}, {"many", many_supports, run_many}};
    return kCandidates;
  }
}

}  // namespace ridge::cpu::RIDGE_ISA_NS
