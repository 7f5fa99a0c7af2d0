// The matmuls for several tokens, run on the host: in pairs of blocks and by wide blocks they give the bits of the matmul for many, with norms before them and what follows done on the way.
#include <gtest/gtest.h>

#include <cmath>

#include "emulated/matmul.h"

namespace ridge::cuda {
namespace {

// Three weights in one op, of which none is whole places. 832 inputs are not all chains in the last step; 320 not even in the only one; 8,256 are more steps than any ring has.
TEST(Several, GivesTheBitsOfMany) {
  std::mt19937 rng(4);
  for (const Case& c : kCases)
    for (const int64_t cols : {int64_t{832}, int64_t{320}, int64_t{8256}}) {
      const auto is = [&](auto... format) { return ((c.raw.format == format) || ...); };
      const bool representative = is(FormatId::nvfp4, FormatId::bf16, FormatId::q8_0, FormatId::q4_1) || c.raw.block_scales;      // of ways of their own
      if (cols != 832 && !representative) continue;
      Machine machine;
      Three weights(c.raw, cols, rng);
      for (const int n : {7, 13, 32}) {
        if ((n == 13 && !representative) || (cols == 8256 && n != 13)) continue;
        for (const int n_sms : {2, 132}) {                                     // blocks alone and pairs
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

// One weight alone, whose result goes to the residual stream as well.
TEST(Several, AddsToTheResidualStream) {
  std::mt19937 rng(5);
  for (const Case& c : {kCases[0], kCases[3]}) {
    Machine machine;
    const Packed w(c.raw, 136, 1088, rng);
    for (const int n_sms : {2, 132}) {
      machine.launch.n_sms = n_sms;
      Rows x = random_rows(18, 1088, rng), stream = random_rows(18, 136, rng), before(18, 136), out(18, 136), norm_out(18, 136);
      std::memcpy(before.row(0), stream.row(0), size_t(before.memory.n));
      const AddNorm norm{.out = norm_out.tensor, .x = stream.tensor, .pending = out.tensor, .pending_scale = 0.75f, .weight = {}, .bias = {}};
      Around around;
      around.residual = &norm;
      matmul_several_tokens({.out = {out.tensor}, .x = x.tensor, .w = {&w.weight}}, around, machine.launch);
      Rows wanted = by_many(w, x.tensor, machine);
      expect_rows(out, wanted, c.name);
      for (int64_t i = 0; i < 18 * 136; ++i) ASSERT_EQ(stream.row(0)[i], std::fmaf(0.75f, out.row(0)[i], before.row(0)[i])) << c.name;
    }
  }
}

// A norm before gate and up, by their own blocks, each with some of the rows; what they gate leaves as down's input.
TEST(Several, NormsBeforeAndActivatesAfter) {
  std::mt19937 rng(6);
  const emulated::Together together;
  for (const Case& c : kCases) {
    Machine machine;
    const Packed gate(c.raw, 128, 576, rng), up(c.raw, 128, 576, rng), down(c.raw, 64, 128, rng);
    Rows weight = random_rows(1, 576, rng);
    for (const int n : {9, 30})
      for (const int n_sms : {2, 8}) {
        machine.launch.n_sms = n_sms;
        const std::string what = std::string(c.name) + ", " + std::to_string(n) + " tokens, " + std::to_string(n_sms) + " multiprocessors";
        Rows x = random_rows(n, 576, rng), normed(n, 576), g(n, 128), u(n, 128), act(n, 128), out(n, 64);
        for (int t = 0; t < n; ++t) {
          double squares = 0;
          for (int k = 0; k < 576; ++k) squares += double(x.row(t)[k]) * double(x.row(t)[k]);
          for (int k = 0; k < 576; ++k) normed.row(t)[k] = x.row(t)[k] * float(1 / std::sqrt(squares / 576 + 1e-5)) * (weight.row(0)[k] + 0.5f);
        }
        const AddNorm norm{.out = normed.tensor, .x = x.tensor, .pending = {}, .weight = weight.tensor, .bias = {}, .eps = 1e-5f, .weight_offset = 0.5f};
        const Activate activate{.out = act.tensor, .gate = g.tensor, .up = u.tensor, .kind = ActKind::silu};
        const Matmul first{.out = {g.tensor, u.tensor}, .x = normed.tensor, .w = {&gate.weight, &up.weight}}, second{.out = {out.tensor}, .x = act.tensor, .w = {&down.weight}};
        Around of_first, of_second;
        of_first.norm = norm, of_first.activate = &activate, of_first.out_lanes = lanes_for(second, machine.launch.activated);
        of_second.x_lanes = machine.launch.activated;
        matmul_several_tokens(first, of_first, machine.launch);
        EXPECT_EQ(machine.normed.n_passed, 0u);
        EXPECT_EQ(machine.normed.n_waited, 0u);
        matmul_several_tokens(second, of_second, machine.launch);
        Rows wg = by_many(gate, normed.tensor, machine), wu = by_many(up, normed.tensor, machine), gated(n, 128);
        for (int i = 0; i < n * 128; ++i) gated.row(0)[i] = wg.row(0)[i] / (1 + std::exp(-wg.row(0)[i])) * wu.row(0)[i];
        Rows wanted = by_many(down, gated.tensor, machine);
        double worst = 0, largest = 0;                                          // numbers of bf16 may be rounded to a neighbour
        for (int i = 0; i < n * 64; ++i) worst = std::max(worst, std::fabs(double(out.row(0)[i]) - double(wanted.row(0)[i]))), largest = std::max(largest, std::fabs(double(wanted.row(0)[i])));
        EXPECT_LT(worst, largest / 100) << what;
      }
  }
}

}  // namespace
}  // namespace ridge::cuda
