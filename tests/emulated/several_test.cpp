// The matmuls for several tokens, run on the host: in pairs of blocks and by wide blocks they give the bits of the matmul for many, with norms before them and what follows done on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "emulated/matmul.h"

namespace ridge::cuda {
namespace {

// Three weights in one op, of which none is whole places. 832 inputs are not all chains in the last step; 320 not even in the only one; 8,256 are more steps than any ring has.
class SeveralOf : public testing::TestWithParam<Case> {};
TEST_P(SeveralOf, GivesTheBitsOfMany) {
  const Case& c = GetParam();
  std::mt19937 rng(4);
  const auto is = [&](auto... format) { return ((c.raw.format == format) || ...); };
  const bool representative = is(FormatId::nvfp4, FormatId::bf16, FormatId::q8_0, FormatId::q4_1) || c.raw.block_scales;      // of ways of their own
  for (const int64_t cols : {int64_t{832}, int64_t{320}, int64_t{8256}}) {
    if (cols != 832 && !representative) continue;
    Machine machine;
    Three weights(c.raw, cols, rng);
    for (const int n : {7, 13, 32}) {
      if ((n == 13 && !representative) || (cols == 8256 && n != 13)) continue;
      for (const int n_sms : {2, 4, 6, 132}) {                                 // blocks alone, pairs that have three times 64 rows (where units are decoded and have no scales), twice and once
        if (n_sms > 2 && n_sms < 132 && (n != 13 || cols != 832)) continue;
        machine.launch.n_sms = n_sms;
        const std::string what = std::string(c.name) + ", " + std::to_string(n) + " tokens, " + std::to_string(cols) + " inputs, " + std::to_string(n_sms) + " multiprocessors";
        weights.expect_bits_of_many(n, machine, rng, what, [&](const Matmul& op) {
          ASSERT_TRUE(takes_several_tokens(op, machine.launch));
          matmul_several_tokens(op, {}, machine.launch);
        });
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, SeveralOf, testing::ValuesIn(kCases), [](const auto& of) {
  std::string name = of.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

// One weight alone, whose result goes to the residual stream as well. 784, 912 and 1,080 rows are more than four multiprocessors take in whole rounds, and what is left goes another way: in q8_0 and bf16 of
// 784 (pairs of 64 rows), in bf16 of 912 (of 128), in nvfp4 and fp8 of 1,080 and many inputs.
TEST(Several, AddsToTheResidualStream) {
  std::mt19937 rng(5);
  struct Shape { int rows, cols, n_sms; };
  for (const Case& c : {kCases[0], kCases[1], kCases[3], kCases[5]})
    for (const auto& [rows, cols, n_sms] : {Shape{136, 1088, 2}, {136, 1088, 132}, {376, 832, 4}, {784, 832, 4}, {912, 832, 4}, {1080, 2112, 4}}) {
      if ((rows == 912 && c.raw.format != FormatId::bf16) || (rows == 1080 && c.raw.format != FormatId::nvfp4 && c.raw.format != FormatId::fp8_e4m3)) continue;
      Machine machine;
      machine.launch.n_sms = n_sms;
      const Packed w(c.raw, rows, cols, rng);
      const std::string what = std::string(c.name) + ", " + std::to_string(rows) + " rows on " + std::to_string(n_sms);
      Rows x = random_rows(18, cols, rng), stream = random_rows(18, rows, rng), before(18, rows), out(18, rows), norm_out(18, rows), bias = random_rows(1, rows, rng);
      std::memcpy(before.row(0), stream.row(0), size_t(before.memory.n));
      const AddNorm norm{.out = norm_out.tensor, .x = stream.tensor, .pending = out.tensor, .pending_scale = 0.75f, .weight = {}, .bias = {}};
      Around around;
      around.residual = &norm;
      const int n_before = emulated::n_grids();
      matmul_several_tokens({.out = {out.tensor}, .x = x.tensor, .w = {&w.weight}, .bias = {bias.tensor}}, around, machine.launch);
      const bool two_ways = rows >= 912 || (rows == 784 && c.raw.format != FormatId::nvfp4 && c.raw.format != FormatId::fp8_e4m3);
      EXPECT_EQ(emulated::n_grids() - n_before, two_ways ? 3 : 2) << what;     // one of them copies the input
      Rows wanted = by_many(w, x.tensor, machine, bias.tensor);
      expect_rows(out, wanted, what);
      for (int64_t i = 0; i < 18 * rows; ++i) ASSERT_EQ(stream.row(0)[i], std::fmaf(0.75f, out.row(0)[i], before.row(0)[i])) << what;
    }
}

// Rows without a norm's factor, in the order of a matmul for several tokens.
void expect_scaled(Rows& x, Rows& weight, float offset, const Lanes& lanes, const std::string& what) {
  for (int t = 0; t < x.tensor.rows; ++t)
    for (int k = 0; k < x.tensor.cols; ++k)
      ASSERT_EQ(*reinterpret_cast<const uint16_t*>(lanes.at(uint32_t(t), uint32_t(k))), f32_to_bf16(x.row(t)[k] * (weight.row(0)[k] + offset))) << what << ", token " << t << ", number " << k;
}

// o leaves what the norm after it makes of the stream: its rows without the norm's factor, and the sums of squares of which gate and up make it; what they gate leaves as down's input. The factors are those
// that the norm before many tokens leaves, and so are the sums of squares that a norm of its own leaves. Of 192 rows each on four multiprocessors a pair has 96 of both; 448 (bf16, q8_0) and 576 (nvfp4) are more than whole rounds.
TEST(Several, NormsBetweenAndActivatesAfter) {
  std::mt19937 rng(6);
  struct Shape { int rows, cols; std::vector<int> tokens, n_sms; };
  for (const auto& [rows, cols, tokens, sms] : {Shape{128, 576, {9, 30}, {2, 8}}, {192, 1024, {9}, {4}}, {448, 1088, {9}, {4}}, {576, 2048, {9}, {4}}, {128, 4224, {13}, {8}}})
    for (const Case& c : kCases) {
      const FormatId format = c.raw.format;
      if (rows > 128 && format != FormatId::nvfp4 && (rows != 448 || (format != FormatId::bf16 && format != FormatId::q8_0))) continue;
      if (cols == 4224 && format != FormatId::nvfp4 && format != FormatId::bf16) continue;
      Machine machine;
      const Packed o(c.raw, cols, 128, rng), gate(c.raw, rows, cols, rng), up(c.raw, rows, cols, rng), down(c.raw, 64, rows, rng);
      Rows weight = random_rows(1, cols, rng);
      for (const int n : tokens)
        for (const int n_sms : sms) {
          machine.launch.n_sms = n_sms;
          const std::string what = std::string(c.name) + ", " + std::to_string(rows) + " rows, " + std::to_string(n) + " tokens, " + std::to_string(n_sms) + " multiprocessors";
          Rows seen = random_rows(n, 128, rng), x = random_rows(n, cols, rng), pending(n, cols), unused(n, cols), g(n, rows), u(n, rows), act(n, rows), out(n, 64);
          const AddNorm norm{.out = unused.tensor, .x = x.tensor, .pending = pending.tensor, .pending_scale = 0.75f, .weight = weight.tensor, .bias = {}, .eps = 1e-5f, .weight_offset = 0.5f};
          const Activate activate{.out = act.tensor, .gate = g.tensor, .up = u.tensor, .kind = ActKind::silu};
          const Matmul first{.out = {pending.tensor}, .x = seen.tensor, .w = {&o.weight}}, second{.out = {g.tensor, u.tensor}, .x = unused.tensor, .w = {&gate.weight, &up.weight}},
              third{.out = {out.tensor}, .x = act.tensor, .w = {&down.weight}};
          Around of_first, of_second, of_third;
          of_first.residual = &norm, of_first.next_lanes = lanes_for(second, machine.launch.scaled);
          of_second.norm = norm, of_second.x_lanes = machine.launch.scaled, of_second.activate = &activate, of_second.out_lanes = lanes_for(third, machine.launch.activated);
          of_third.x_lanes = machine.launch.activated;
          matmul_several_tokens(first, of_first, machine.launch);
          expect_scaled(x, weight, 0.5f, of_first.next_lanes, what + ", left by o");
          const TileSquares squares{machine.launch.tile_squares, cols};
          std::vector<float> left_by_o;
          for (int t = 0; t < n; ++t)
            for (int k = 0; k < cols; k += 16) left_by_o.push_back(squares.at[squares.place(t, k)]);
          const int n_before = emulated::n_grids();
          matmul_several_tokens(second, of_second, machine.launch);
          EXPECT_EQ(emulated::n_grids() - n_before, rows == 576 || (rows == 448 && format != FormatId::nvfp4) ? 2 : 1) << what;
          matmul_several_tokens(third, of_third, machine.launch);

          // The same by kernels of their own.
          AddNorm alone = norm;
          alone.pending = {};
          Aligned tiles(tiles_bytes(n, cols));
          std::vector<float> factors(size_t(n) + kTileTokens);
          add_norm(alone, {.lanes = of_first.next_lanes, .squares = squares}, machine.launch);
          expect_scaled(x, weight, 0.5f, of_first.next_lanes, what + ", left by a norm");
          for (int t = 0; t < n; ++t)
            for (int k = 0; k < cols; k += 16) ASSERT_EQ(left_by_o[size_t(t * cols / 16 + k / 16)], squares.at[squares.place(t, k)]) << what;
          add_norm(alone, {.tiles = {tiles.at, false}, .factors = factors.data()}, machine.launch);
          Rows scaled(n, cols), gated(n, rows);
          for (int t = 0; t < n; ++t)
            for (int k = 0; k < cols; ++k) scaled.row(t)[k] = x.row(t)[k] * (weight.row(0)[k] + 0.5f);
          Rows wg = by_many(gate, scaled.tensor, machine, {}, factors.data()), wu = by_many(up, scaled.tensor, machine, {}, factors.data());
          for (int i = 0; i < n * rows; ++i) gated.row(0)[i] = wg.row(0)[i] / (1 + std::exp(-wg.row(0)[i])) * wu.row(0)[i];
          Rows wanted = by_many(down, gated.tensor, machine);
          double largest = 0;
          for (int i = 0; i < n * 64; ++i) largest = std::max(largest, std::fabs(double(wanted.row(0)[i])));
          for (int i = 0; i < n * 64; ++i) ASSERT_LT(std::fabs(double(out.row(0)[i]) - double(wanted.row(0)[i])), largest / 100) << what;      // numbers of bf16 may be rounded to a neighbour

          // And the bits of gate, not activated.
          Around plain;
          plain.norm = norm, plain.x_lanes = machine.launch.scaled;
          matmul_several_tokens({.out = {g.tensor}, .x = unused.tensor, .w = {&gate.weight}}, plain, machine.launch);
          expect_rows(g, wg, what + ", gate");
        }
    }
}

}  // namespace
}  // namespace ridge::cuda
