// Mamba-1's scan, 16 channels to a vector. The newest state is kept in the page beside the checkpoint, with its place in the page: the next token goes on from
// there, and a token that does not follow it (after a step back) replays the entries since the checkpoint, by the same operations and so to the same bits.
//   planes of a page, f32:  [n_state][channels] state   [n_state + 1][channels] newest state, and its place   [64][2][channels] x, dt   [64][n_state] b
#include "backend/step.h"
#include "cpu/kernels/kernels.h"
#include "cpu/simd/math.h"

namespace ridge::cpu::RIDGE_ISA_NS {
namespace {

constexpr int kPage = 64;
constexpr int64_t kChannels = 64;            // of a unit of work

// Some channels of one sequence. The state is [n_state][kChannels] in scratch while tokens go by.
class Channels {
 public:
  Channels(const SelectiveScan& op, const Step& step, const StepSeq& seq, int64_t first, int64_t n, float* state)
      : op_(op), seq_(seq), pages_(step.pages() + seq.first_page[op.kv.group]), first_(first), n_(n), all_(op.x.cols), n_state_(op.rate.rows), state_(state),
        first_position_(step.positions().data()[seq.first_row]) {}

  void run() {
    restore(first_position_);
    for (int64_t i = 0; i < seq_.n_rows; ++i) {
      const int64_t position = first_position_ + i, row = seq_.first_row + i;
      const int32_t page = pages_[position / kPage];
      if (position % kPage == 0) put(plane(0, page));
      float *x = entries(page, position % kPage), *dt = x + all_;
      for_lanes(0, n_, [&](int64_t c, int n) {
        store_n(x + c, load_n(op_.x.f32(row) + first_ + c, n), n);
        store_n(dt + c, softplus(load_n(op_.gate.f32(row) + first_ + c, n)), n);
      });
      const float* b = op_.b.f32(row);
      if (first_ == 0)
        for (int64_t n = 0; n < n_state_; ++n) plane(3, page)[position % kPage * n_state_ + n] = b[n];
      advance(x, dt, b);
      read(row, x);
      if (position % kPage == kPage - 1 || i + 1 == seq_.n_rows) keep(page, static_cast<float>(position % kPage));
    }
  }

 private:
  float* plane(int i, int32_t page) const { return reinterpret_cast<float*>(op_.kv.plane(i, page)); }
  float* entries(int32_t page, int64_t j) const { return plane(2, page) + j * 2 * all_ + first_; }

  void advance(const float* x, const float* dt, const float* b) const {
    for_lanes(0, n_, [&](int64_t c, int n) {
      const F step = load_n(dt + c, n), added = mul(step, load_n(x + c, n));
      for (int64_t i = 0; i < n_state_; ++i) {
        float* h = state_ + i * kChannels + c;
        store_n(h, fma(added, set1(b[i]), mul(exp(mul(step, load_n(op_.rate.f32(i) + first_ + c, n))), load_n(h, n))), n);
      }
    });
  }

  void read(int64_t row, const float* x) const {
    const float* weights = op_.c.f32(row);
    for_lanes(0, n_, [&](int64_t c, int n) {
      F sum = zero();
      for (int64_t i = 0; i < n_state_; ++i) sum = fma(set1(weights[i]), load_n(state_ + i * kChannels + c, n), sum);
      store_n(op_.out.f32(row) + first_ + c, fma(load_n(op_.skip.f32() + first_ + c, n), load_n(x + c, n), sum), n);
    });
  }

  // The state before `position`.
  void restore(int64_t position) const {
    if (position == 0) {
      for (int64_t i = 0; i < n_state_; ++i) for_lanes(0, n_, [&](int64_t c, int n) { store_n(state_ + i * kChannels + c, zero(), n); });
      return;
    }
    const int64_t index = (position - 1) / kPage, n_entries = position - index * kPage;
    const int32_t page = pages_[index];
    if (page < 0) return get(plane(0, pages_[position / kPage]));        // given back, because its successor has its state already
    const float* newest = plane(1, page);
    if (newest[n_state_ * all_ + first_] == static_cast<float>(n_entries - 1)) return get(newest);
    get(plane(0, page));
    for (int64_t j = 0; j < n_entries; ++j) advance(entries(page, j), entries(page, j) + all_, plane(3, page) + j * n_state_);
  }

  void get(const float* from) const {
    for (int64_t i = 0; i < n_state_; ++i)
      for_lanes(0, n_, [&](int64_t c, int n) { store_n(state_ + i * kChannels + c, load_n(from + i * all_ + first_ + c, n), n); });
  }
  void put(float* to) const {
    for (int64_t i = 0; i < n_state_; ++i)
      for_lanes(0, n_, [&](int64_t c, int n) { store_n(to + i * all_ + first_ + c, load_n(state_ + i * kChannels + c, n), n); });
  }
  void keep(int32_t page, float place) const {
    put(plane(1, page));
    for_lanes(0, n_, [&](int64_t c, int n) { store_n(plane(1, page) + n_state_ * all_ + first_ + c, set1(place), n); });
  }

  const SelectiveScan& op_;
  const StepSeq& seq_;
  const int32_t* pages_;
  const int64_t first_, n_, all_, n_state_;
  float* state_;
  const int64_t first_position_;
};

}  // namespace

void selective_scan(const SelectiveScan& op, Lane& lane) {
  const int64_t n_parts = (op.x.cols + kChannels - 1) / kChannels;
  auto* scratch = reinterpret_cast<float*>(lane.own.data());
  lane.share(static_cast<int64_t>(lane.step->seqs().size()) * n_parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t channel = unit % n_parts * kChannels;
      Channels(op, *lane.step, lane.step->seqs().data()[unit / n_parts], channel, std::min(kChannels, op.x.cols - channel), scratch).run();
    }
  });
}

bool fits_selective_scan(const SelectiveScan& op) { return op.kv.page_size == kPage && op.rate.rows * kChannels * 4 <= int64_t{8} << 20; }

}  // namespace ridge::cpu::RIDGE_ISA_NS
