#include "cpu/q4_pairs.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <vector>

#include "cpu/team.h"
#include "formats/q4_0.h"

namespace ridge::cpu {
namespace {

constexpr double kMostError = 0.02;

// The fraction p / q, q in [8, 15], that is nearest to i / kSteps; of equal ones that with the largest parts. s = of_smaller * smaller + of_larger * larger is the scale
// of least squared error.
struct Fraction {
  int8_t p = 0, q = 15;
  float of_smaller = 0, of_larger = 0;
};
constexpr int kSteps = 1024;                 // fractions are 5 steps apart or more

constexpr std::array<Fraction, kSteps + 1> nearest_fractions() {
  std::array<Fraction, kSteps + 1> all{};
  for (int i = 0; i <= kSteps; ++i) {
    const auto distance = [i](int p, int q) { return std::max(p * kSteps - i * q, i * q - p * kSteps); };       // times q
    Fraction& best = all[static_cast<size_t>(i)];
    for (int q = 15; q >= 8; --q)
      for (int p = i * q / kSteps; p <= std::min(q, i * q / kSteps + 1); ++p)
        if (distance(p, q) * best.q < distance(best.p, best.q) * q) best.p = static_cast<int8_t>(p), best.q = static_cast<int8_t>(q);
    const float squares = static_cast<float>(best.p * best.p + best.q * best.q);
    best.of_smaller = static_cast<float>(best.p) / squares, best.of_larger = static_cast<float>(best.q) / squares;
  }
  return all;
}
constexpr std::array<Fraction, kSteps + 1> kNearest = nearest_fractions();

}  // namespace

ScalePair pair_scales(float a, float b) {
  const float size_a = std::fabs(a), size_b = std::fabs(b), larger = std::max(size_a, size_b), smaller = std::min(size_a, size_b);
  const float ratio = smaller / larger;
  if (!(ratio <= 1)) return {.eight_s = f32_to_f16(larger), .m = {}};        // both are zero, or one is no number
  const Fraction& nearest = kNearest[static_cast<size_t>(ratio * kSteps + 0.5f)];
  ScalePair pair{.eight_s = f32_to_f16(8 * (nearest.of_smaller * smaller + nearest.of_larger * larger)), .m = {nearest.q, nearest.p}};
  if (size_a < size_b) std::swap(pair.m[0], pair.m[1]);
  if (a < 0) pair.m[0] = static_cast<int8_t>(-pair.m[0]);
  if (b < 0) pair.m[1] = static_cast<int8_t>(-pair.m[1]);
  return pair;
}

bool pairs_suit(const StoredWeight& stored, Team& team) {
  if (stored.codes.format != FormatId::q4_0) return false;
  std::vector<double> off(static_cast<size_t>(stored.rows));                  // sums by row, so that the workers' shares do not matter
  std::atomic<int64_t> n_scales = 0;
  team.parallel(stored.rows, 64, [&](int64_t first, int64_t last) {
    int64_t n = 0;
    for (int64_t r = first; r < last; ++r) {
      if (r % 8 != 0) continue;                                               // a sample says enough
      const auto* blocks = stored.codes.row_as<const BlockQ4_0>(r);
      for (int64_t i = 0; i + 1 < stored.cols / 32; i += 2) {
        const float scales[2] = {f16_to_f32(blocks[i].d), f16_to_f32(blocks[i + 1].d)};
        const ScalePair pair = pair_scales(scales[0], scales[1]);
        const double s = f16_to_f32(pair.eight_s) / 8;
        for (int b = 0; b < 2; ++b) {
          if (scales[b] == 0) continue;
          const double relative = s * pair.m[b] / scales[b] - 1;
          off[static_cast<size_t>(r)] += relative * relative;
          ++n;
        }
      }
    }
    n_scales += n;
  });
  double sum = 0;
  for (const double row : off) sum += row;
  return n_scales == 0 || sum <= kMostError * kMostError * static_cast<double>(n_scales);       // not a number: no
}

}  // namespace ridge::cpu
