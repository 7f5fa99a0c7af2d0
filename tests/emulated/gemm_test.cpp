// The matmul for many tokens, run on the host: every way of every unit gives the same bits, those of a plain computation but for the rounding of sums.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "cuda/lib/activation.h"
#include "cuda/lib/units.h"
#include "emulated/matmul.h"

namespace ridge::cuda {
namespace {

constexpr GemmWay kWays[] = {{192, false}, {184, false}, {128, false}, {64, false}, {192, true}, {128, true}, {64, true}};

// Attention of few rows writes the input of this matmul as rows of lanes.
TEST(Gemm, ATileIsLanesInRows) {
  std::byte lanes_memory[2 * kTileBytes];
  for (const bool halves : {false, true}) {
    const Lanes lanes{.data = lanes_memory, .n_groups = kTileTokens / 8, .halves = halves, .rows = true};
    for (uint32_t t = 0; t < kTileTokens; ++t)
      for (uint32_t k = 0; k < 128; k += 2) ASSERT_EQ(lanes.at(t, k) - lanes_memory, tile_place(int(t), int(k), 2, halves)) << "token " << t << ", input " << k;
  }
}

// Two weights of one op, of which neither is whole blocks; 704 inputs are not all chains in the second round.
TEST(Gemm, EveryWayGivesTheBitsOfTheOthers) {
  std::mt19937 rng(1);
  Machine machine;
  for (const Case& c : kCases) {
    const Packed w(c.raw, 200, 704, rng), small(c.raw, 20, 704, rng);
    Rows bias = random_rows(1, 200, rng);
    for (const int n : {40, 200}) {
      if (n == 200 && c.raw.format != FormatId::bf16 && c.raw.format != FormatId::nvfp4 && c.raw.format != FormatId::q4_1) continue;      // one of each kind
      Rows x = random_rows(n, 704, rng), first(n, 200);
      bool is_first = true;
      for (const GemmWay& way : kWays) {
        if (way.tokens > 128 && has_scales(c)) continue;
        const std::string what = std::string(c.name) + ", " + std::to_string(n) + " tokens, blocks of " + std::to_string(way.tokens) + (way.by_chain ? " by chain" : "");
        Rows out(n, 200), out_small(n, 20);
        Aligned tiles(tiles_bytes(n, 704));
        const Matmul op{.out = {out.tensor, out_small.tensor}, .x = x.tensor, .w = {&w.weight, &small.weight}, .bias = {bias.tensor}};
        machine.launch.gemm_way = way;
        gemm(w.weight, {.part = {part_from(op, 0), part_from(op, 1), {}}, .n = 2}, x.tensor, tiles.at, false, machine.launch);
        for (int t = 0; t < n; ++t) {
          ASSERT_NEAR(out.row(t)[t % 200], product(w, t % 200, x.row(t)) + bias.row(0)[t % 200], 1e-3) << what << ", token " << t;
          ASSERT_NEAR(out_small.row(t)[t % 20], product(small, t % 20, x.row(t)), 1e-3) << what << ", token " << t;
        }
        if (std::exchange(is_first, false)) std::memcpy(first.row(0), out.row(0), size_t(out.memory.n));
        else ASSERT_EQ(std::memcmp(first.row(0), out.row(0), size_t(out.memory.n)), 0) << what;
      }
    }
  }
}

TEST(Gemm, AddsToTheResidualStream) {
  std::mt19937 rng(2);
  Machine machine;
  const Packed w({FormatId::nvfp4}, 264, 576, rng);
  const int n = 70;
  Rows x = random_rows(n, 576, rng), before = random_rows(n, 264, rng), out(n, 264);
  for (const GemmWay& way : kWays) {
    machine.launch.gemm_way = way;
    Rows stream(n, 264);
    std::memcpy(stream.row(0), before.row(0), size_t(before.memory.n));
    Aligned tiles(tiles_bytes(n, 576));
    const Matmul op{.out = {out.tensor}, .x = x.tensor, .w = {&w.weight}};
    gemm(w.weight, {.part = {part_from(op, 0), {}, {}}, .n = 1}, x.tensor, tiles.at, false, machine.launch);
    gemm(w.weight, {.part = {part_from(op, 0), {}, {}}, .n = 1, .residual = {stream.row(0), 264}}, x.tensor, tiles.at, true, machine.launch);
    for (int i = 0; i < n * 264; ++i) ASSERT_EQ(stream.row(0)[i], before.row(0)[i] + out.row(0)[i]) << "blocks of " << way.tokens << (way.by_chain ? " by chain" : "") << ", number " << i;
  }
}

// Gate and up: what leaves is the input of the next matmul, in units of 64 rows; three of them are not whole blocks of any kind. 200 tokens are two of its tiles.
TEST(Gemm, ActivatesOnTheWay) {
  std::mt19937 rng(3);
  Machine machine;
  for (const Case& c : kCases) {
    const Packed gate(c.raw, 192, 576, rng), up(c.raw, 192, 576, rng);
    Rows bias = random_rows(1, 192, rng);
    for (const int n : {40, 200})
      for (const ActKind kind : {ActKind::silu, ActKind::gelu_tanh}) {
        if (kind == ActKind::gelu_tanh && c.raw.format != FormatId::nvfp4) continue;
        Rows x = random_rows(n, 576, rng), out(n, 192);
        std::vector<float> factors(size_t(n) + kTileTokens);                 // of a norm before
        for (int t = 0; t < n; ++t) factors[size_t(t)] = 0.5f + float(t % 7);
        const Matmul op{.out = {out.tensor, out.tensor}, .x = x.tensor, .w = {&gate.weight, &up.weight}, .bias = {bias.tensor}};
        std::vector<uint16_t> first;
        for (const int tokens : {192, 128, 64}) {
          if (tokens == 192 && has_scales(c)) continue;
          const std::string what = std::string(c.name) + ", " + std::to_string(n) + " tokens, blocks of " + std::to_string(tokens);
          Aligned tiles(tiles_bytes(n, 576)), out_tiles(tiles_bytes(n, 192));
          machine.launch.gemm_way = {tokens, false};
          gemm_activate(out_tiles.at, op, kind, tiles.at, false, factors.data(), machine.launch);
          std::vector<uint16_t> got;
          for (int t = 0; t < n; ++t)
            for (int k = 0; k < 192; ++k) got.push_back(reinterpret_cast<const uint16_t*>(out_tiles.at + tile_place(t, k / 2 * 2, 3, takes_halves(gate.weight)))[k % 2]);
          for (int t = 0; t < n; ++t) {
            const int k = t % 192;
            const float wanted = act(kind, float(product(gate, k, x.row(t))) * factors[size_t(t)] + bias.row(0)[k]) * float(product(up, k, x.row(t))) * factors[size_t(t)];
            ASSERT_NEAR(bf16_to_f32(got[size_t(t * 192 + k)]), wanted, std::fabs(wanted) / 128 + 1e-3) << what << ", token " << t;
          }
          if (first.empty()) first = got;
          else ASSERT_EQ(first, got) << what;
        }
      }
  }
}

}  // namespace
}  // namespace ridge::cuda
