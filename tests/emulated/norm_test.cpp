// The norm before matmuls of many tokens, run on the host: what is pending is added, and the rows lie as tiles.
#include <gtest/gtest.h>

#include <cmath>

#include "emulated/matmul.h"

namespace ridge::cuda {
namespace {

TEST(NormMany, AddsAndLeavesTiles) {
  std::mt19937 rng(9);
  for (const int64_t cols : {int64_t{128}, int64_t{1152}, int64_t{4096}})      // of one chunk a thread, not even that, and more
    for (const bool adds : {false, true})
      for (const int n : {1, 40, 200}) {
        Machine machine;                                                       // nine blocks, so that they stay for several rows
        Rows x = random_rows(n, cols, rng), pending = random_rows(n, cols, rng), weight = random_rows(1, cols, rng), before(n, cols), out(n, cols);
        std::memcpy(before.row(0), x.row(0), size_t(before.memory.n));
        AddNorm op{.out = out.tensor, .x = x.tensor, .pending = adds ? pending.tensor : Tensor{}, .pending_scale = 0.75f, .weight = weight.tensor, .bias = {}, .eps = 1e-5f, .weight_offset = 0.5f};
        ASSERT_TRUE(norm_many_takes(op));
        Aligned tiles(tiles_bytes(n, cols));
        const bool halves = n == 40;
        std::vector<float> factors(size_t(n), -1.0f);
        const bool left = n == 200;                                            // the factor, to the matmul
        norm_many(op, {tiles.at, halves}, left ? factors.data() : nullptr, machine.launch);
        for (int t = 0; t < n; ++t) {
          double squares = 0;
          for (int64_t k = 0; k < cols; ++k) {
            const float wanted = adds ? std::fmaf(0.75f, pending.row(t)[k], before.row(t)[k]) : before.row(t)[k];
            ASSERT_EQ(x.row(t)[k], wanted) << "token " << t << ", number " << k;
            squares += double(wanted) * double(wanted);
          }
          double factor = 1 / std::sqrt(squares / double(cols) + 1e-5);
          ASSERT_NEAR(factors[size_t(t)], left ? factor : -1, 1e-5);
          if (left) factor = 1;
          for (int64_t k = 0; k < cols; ++k) {
            const double wanted = double(x.row(t)[k]) * factor * (double(weight.row(0)[k]) + 0.5);
            const uint16_t got = reinterpret_cast<const uint16_t*>(tiles.at + tile_place(t, int(k / 2 * 2), int(cols / 64), halves))[k % 2];
            ASSERT_NEAR(bf16_to_f32(got), wanted, std::fabs(wanted) / 200 + 1e-6) << cols << " wide, token " << t << " of " << n << ", number " << k;
          }
        }
      }
}

}  // namespace
}  // namespace ridge::cuda
