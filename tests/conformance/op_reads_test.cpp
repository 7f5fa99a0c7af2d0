// Which results of a step are still read, where scratch is used again by others.
#include "backend/op_reads.h"

#include <gtest/gtest.h>

#include <vector>

namespace ridge {
namespace {

constexpr int kRows = 5, kModel = 64, kWide = 192;

// Two layers as a model names them: queries lie where the gate of the layer before was, in rows a third as long.
struct Layers {
  std::vector<std::byte> memory = std::vector<std::byte>(size_t{6} * kRows * kWide * 4);
  Tensor at(int buffer, int cols) { return view(memory.data() + size_t(buffer) * kRows * kWide * 4, FormatId::f32, kRows, cols); }
  Tensor gate = at(0, kWide), up = at(1, kWide), q = at(0, kModel), k = at(1, kModel), v = at(2, kModel), seen = at(3, kModel), x = at(4, kModel), normed = at(5, kModel);
  std::vector<Op> layer = {AddNorm{.out = normed, .x = x}, Matmul{.out = {q, k, v}, .x = normed},   HeadNorm{.x = q},  RopeStore{.q = q, .k = k, .v = v},
                           PagedAttention{.out = seen, .q = q}, Matmul{.out = {normed}, .x = seen}, AddNorm{.out = normed, .x = x, .pending = normed},
                           Matmul{.out = {gate, up}, .x = normed}, Activate{.out = gate, .gate = gate, .up = up}, Matmul{.out = {normed}, .x = gate}};
  std::vector<Op> two() const {
    std::vector<Op> ops = layer;
    ops.insert(ops.end(), layer.begin(), layer.end());
    return ops;
  }
};

TEST(OpReads, WhatTheNextLayerPutsInAResultsPlaceIsNotThatResult) {
  Layers l;
  const std::vector<Op> ops = l.two();
  EXPECT_TRUE(is_read_from(ops, 9, l.gate));                                 // by the matmul over it
  EXPECT_FALSE(is_read_from(ops, 10, l.gate));
  EXPECT_FALSE(is_read_from(ops, 10, l.up));
  EXPECT_TRUE(is_read_from(ops, 4, l.q));
  EXPECT_FALSE(is_read_from(ops, 5, l.q));                                   // the gate covers it
  EXPECT_TRUE(is_read_from(ops, 5, l.seen));
  EXPECT_FALSE(is_read_from(ops, 6, l.seen));
  EXPECT_TRUE(is_read_from(ops, 10, l.x));
}

TEST(OpReads, ATensorThatIsWrittenInPartIsStillReadInTheRest) {
  Layers l;
  std::vector<Op> ops = l.two();
  ops.insert(ops.begin() + 12, ScaleCap{.x = l.gate});                       // behind the queries of the second layer
  EXPECT_TRUE(is_read_from(ops, 10, l.gate));
  ops[12] = ScaleCap{.x = l.gate.slice_rows(kRows - 1, 1)};
  EXPECT_TRUE(is_read_from(ops, 10, l.gate));
  ops[12] = ScaleCap{.x = l.q.slice_rows(kRows - 1, 1)};
  EXPECT_FALSE(is_read_from(ops, 10, l.gate));
}

TEST(OpReads, ColumnsOfWiderRowsCoverNothingButThemselves) {
  Layers l;
  const Tensor left = l.gate.slice_cols(0, kModel), right = l.gate.slice_cols(kModel, kModel);
  EXPECT_TRUE(is_read_from(std::vector<Op>{Matmul{.out = {left}, .x = l.normed}, ScaleCap{.x = right}}, 0, l.gate));
}

TEST(OpReads, AnOpThatIsNotKnownMightReadAnything) {
  Layers l;
  std::vector<Op> ops = l.two();
  ops.insert(ops.begin() + 10, MoeRoute{});
  EXPECT_TRUE(is_read_from(ops, 10, l.gate));
}

}  // namespace
}  // namespace ridge
