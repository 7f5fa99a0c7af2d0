// The matmuls for few tokens, run on the host: alone and as phases of one kernel they give the bits of the matmul for many. And the kernel that only reads as they do.
#include <gtest/gtest.h>

#include "cuda/phases.h"
#include "emulated/matmul.h"

namespace ridge::cuda {
namespace {

constexpr int kPiece = 4096;                                                   // of an input that comes piece by piece

// Three weights in one op, of which none is whole tiles for every team; 704 inputs are no whole slots.
TEST(Few, GivesTheBitsOfMany) {
  std::mt19937 rng(7);
  for (const Case& c : kCases)
    for (const int64_t cols : {int64_t{704}, int64_t{1024}}) {
      if (cols == 1024 && c.raw.format != FormatId::nvfp4 && c.raw.format != FormatId::fp8_e4m3) continue;      // whole runs, where there are such
      Machine machine;
      Three weights(c.raw, cols, rng);
      for (const int n : {1, 3, 8}) {
        const std::string what = std::string(c.name) + ", " + std::to_string(n) + " tokens, " + std::to_string(cols) + " inputs";
        weights.expect_bits_of_many(n, machine, rng, what, [&](const Matmul& op) {
          const FewPhase phase{.op = op, .around = {}};
          matmul_few_tokens({&phase, 1}, {}, machine.launch);
        });
      }
    }
}

// Gate and up, down, and the next layer's q, as phases of one kernel whose blocks wait for each other's results, and each as a kernel of its own. (A step's first kernel has one phase in any case.)
TEST(Few, PhasesGiveTheBitsOfOneByOne) {
  std::mt19937 rng(8);
  const int64_t d = kPiece, d_ff = kPiece;                                     // phases have no other inputs
  const RawFormat raw{FormatId::nvfp4};
  const Packed o(raw, 16, 64, rng), gate(raw, d_ff, d, rng), up(raw, d_ff, d, rng), down(raw, d, d_ff, rng), q(raw, 48, d, rng);
  Rows seen = random_rows(1, 64, rng), start = random_rows(1, d, rng), weight = random_rows(1, d, rng);
  Rows streams[2] = {Rows(1, d), Rows(1, d)}, results[2] = {Rows(1, 48), Rows(1, 48)};
  const emulated::Together together;
  for (const bool phased : {false, true}) {
    Machine machine;
    Aligned relays(kRelayBytes);
    machine.launch.relays = phased ? relays.at : nullptr;
    Rows &stream = streams[phased], out_o(1, 16), pending(1, d), normed(1, d), g(1, d_ff), u(1, d_ff), act(1, d_ff);
    std::memcpy(stream.row(0), start.row(0), size_t(start.memory.n));
    const AddNorm norm{.out = normed.tensor, .x = stream.tensor, .pending = {}, .weight = weight.tensor, .bias = {}, .eps = 1e-5f, .weight_offset = 0.5f};
    const AddNorm adds{.out = normed.tensor, .x = stream.tensor, .pending = pending.tensor, .pending_scale = 0.75f, .weight = weight.tensor, .bias = {}, .eps = 1e-5f, .weight_offset = 0.5f};
    const Activate activate{.out = act.tensor, .gate = g.tensor, .up = u.tensor, .kind = ActKind::silu};
    Around around_gate, around_down, around_q;
    around_gate.norm = norm, around_gate.activate = &activate, around_gate.bf16_out = machine.launch.activated;
    around_down.x_bf16 = machine.launch.activated, around_down.residual = &adds;
    around_q.norm = norm;
    PhasedMatmuls matmuls;
    matmuls.add({.out = {out_o.tensor}, .x = seen.tensor, .w = {&o.weight}}, {}, machine.launch);
    matmuls.flush(machine.launch);
    matmuls.add({.out = {g.tensor, u.tensor}, .x = normed.tensor, .w = {&gate.weight, &up.weight}}, around_gate, machine.launch);
    matmuls.add({.out = {pending.tensor}, .x = act.tensor, .w = {&down.weight}}, around_down, machine.launch);
    matmuls.add({.out = {results[phased].tensor}, .x = normed.tensor, .w = {&q.weight}}, around_q, machine.launch);
    matmuls.flush(machine.launch);
    const auto* const words = reinterpret_cast<const uint32_t*>(relays.at);
    EXPECT_EQ(std::any_of(words, words + kRelayBytes / 4, [](uint32_t w) { return w != kUnmade; }), phased) << "whether anything went through relays";
  }
  expect_rows(streams[1], streams[0], "the residual stream");
  expect_rows(results[1], results[0], "q");
}

TEST(ReadInTurn, PassesItsInputOn) {
  std::mt19937 rng(3);
  Machine machine;
  const Aligned data((int64_t{11} << 14) + 5);                                 // the last slot is not whole, and not read
  for (const int n_at_once : {1, 2, 5, 12})
    for (const int64_t n : {16, 1040, kMostInputInTurn}) {
      const Aligned input(n), results(4 * 3000);
      for (int64_t i = 0; i < n / 4; ++i) reinterpret_cast<uint32_t*>(input.at)[i] = rng();
      read_in_turn(data.at, data.n, n_at_once, {input.at, size_t(input.n)}, {results.at, size_t(results.n)}, machine.launch);
      for (int64_t i = 0; i < 3000; ++i) ASSERT_EQ(reinterpret_cast<uint32_t*>(results.at)[i], reinterpret_cast<uint32_t*>(input.at)[i % (n / 4)]) << n_at_once << " slots, " << n << " bytes, word " << i;
    }
  read_in_turn(data.at, data.n, 5, {}, {}, machine.launch);
}

}  // namespace
}  // namespace ridge::cuda
