// The changes that llama.cpp's converter makes to tensors: the parts a tensor is taken apart into hold each of its numbers once, and shapes come back.
#include "files/gguf/layout.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace ridge {
namespace {

const Json kConfig = Json::parse(R"({"num_attention_heads": 4, "num_key_value_heads": 2, "qk_nope_head_dim": 6, "v_head_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
  "linear_key_head_dim": 4, "linear_value_head_dim": 2, "n_groups": 2, "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}})");

struct Case {
  std::vector<Change> parts;
  std::vector<int64_t> hf_shape;
};

int64_t numbers_in(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

TEST(GgufLayout, PartsHoldEveryNumberOnce) {
  using enum Change;
  const Case cases[] = {{{none}, {3, 4}},          {{q_heads}, {32, 3}},      {{q_heads}, {32}},           {{k_heads}, {16, 2}},        {{squeeze}, {5, 1, 4}},
                        {{column}, {6}},           {{groups}, {8}},           {{first_half, second_half}, {3, 8, 2}}, {{first_half, second_half}, {8, 5}},
                        {{transposed}, {2, 3, 5}}, {{transposed_first_half, transposed_second_half}, {2, 3, 8}},      {{transposed_even, transposed_odd}, {2, 3, 8}},
                        {{even, odd}, {3, 10}},    {{k_b, v_b}, {40, 7}},     {{qkv_by_head}, {36, 2}},    {{qkv_by_head}, {36}},       {{qkv_of_qkvz, z_of_qkvz}, {40, 3}},
                        {{v_heads}, {12, 5}},      {{v_heads}, {6}},          {{v_heads_after_qk}, {28, 2}}, {{conv_v_heads}, {28, 1, 4}}, {{v_heads_in_columns}, {5, 12}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(static_cast<int>(c.parts[0]));
    std::vector<int> seen(static_cast<size_t>(numbers_in(c.hf_shape)));
    const int64_t hf_cols = c.hf_shape.back();
    for (const Change part : c.parts) {
      const GgufLayout l = layout_from_hf(part, c.hf_shape, kConfig, "t");
      EXPECT_EQ(l.hf_shape, c.hf_shape);
      const GgufLayout back = layout_from_gguf(part, l.gguf_shape, kConfig, "t");
      EXPECT_EQ(back.hf_shape, c.hf_shape);
      const int64_t cols = l.gguf_shape.back(), rows = numbers_in(l.gguf_shape) / cols;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < cols; ++k) {
          const Place p = l.same_order ? Place{0, r * cols + k} : l.place(r, k);
          if (l.whole_rows && !l.same_order) ASSERT_EQ(p.col, k);
          if (!l.same_order) {
            const Place q = back.place(r, k);
            ASSERT_TRUE(p.row == q.row && p.col == q.col);
          }
          const int64_t at = p.row * hf_cols + p.col;
          ASSERT_TRUE(at >= 0 && at < static_cast<int64_t>(seen.size()));
          ++seen[static_cast<size_t>(at)];
        }
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  }
}

// Spelled out for the two that are easy to get wrong.
TEST(GgufLayout, KeysOfMlaAreTransposedHeadByHead) {
  const GgufLayout l = layout_from_hf(Change::k_b, {40, 7}, kConfig, "t");
  EXPECT_EQ(l.gguf_shape, (std::vector<int64_t>{4, 7, 6}));
  const Place p = l.place(1 * 7 + 3, 5);                    // head 1, latent 3, key number 5
  EXPECT_EQ(p.row, 1 * 10 + 5);
  EXPECT_EQ(p.col, 3);
}

TEST(GgufLayout, ValueHeadsTakeTurnsAmongKeyHeads) {
  const GgufLayout l = layout_from_hf(Change::v_heads, {12, 5}, kConfig, "t");
  // Grouped: k0 has heads 0 1 2, k1 has 3 4 5. In turns: 0 3 1 4 2 5; a head has two rows.
  const int64_t heads[] = {0, 3, 1, 4, 2, 5};
  for (int64_t r = 0; r < 12; ++r) EXPECT_EQ(l.place(r, 0).row, heads[r / 2] * 2 + r % 2);
}

TEST(GgufLayout, ShapesThatDoNotDivideAreRefusedByName) {
  for (const auto& [change, shape] : {std::pair<Change, std::vector<int64_t>>{Change::q_heads, {30, 3}}, {Change::k_b, {39, 7}}, {Change::first_half, {3, 7, 2}}, {Change::squeeze, {3, 4}},
                                      {Change::even, {3, 5}}, {Change::qkv_of_qkvz, {41, 3}}, {Change::v_heads, {7, 3}}, {Change::groups, {7}}})
    EXPECT_TRUE(mentions(error_of([&] { layout_from_hf(change, shape, kConfig, "blk.0.x"); }), {"blk.0.x"}));
  EXPECT_TRUE(mentions(error_of([&] { layout_from_hf(Change::k_b, {40, 7}, Json::object(), "x"); }), {"num_attention_heads"}));
}

}  // namespace
}  // namespace ridge
