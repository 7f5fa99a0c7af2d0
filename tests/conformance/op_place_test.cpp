// How messages name the place of an op in a model.
#include "backend/op_place.h"

#include <gtest/gtest.h>

#include <vector>

namespace ridge {
namespace {

Weight named(const std::string& name) { return {.name = name}; }

struct TwoLayers {
  Weight table = named("model.embed_tokens.weight"), q = named("model.layers.6.self_attn.q_proj.weight"), k = named("model.layers.6.self_attn.k_proj.weight"),
         o = named("model.layers.6.self_attn.o_proj.weight"), next = named("model.layers.7.self_attn.q_proj.weight"), head = named("lm_head.weight"), nameless;
  std::vector<Op> ops = {Embed{.out = {}, .table = &table}, AddNorm{}, Matmul{.out = {}, .x = {}, .w = {&q, &k}}, RopeStore{}, PagedAttention{}, Matmul{.out = {}, .x = {}, .w = {&o}},
                         AddNorm{}, Matmul{.out = {}, .x = {}, .w = {&next}}, GatherRows{}, Matmul{.out = {}, .x = {}, .w = {&head}}, ScaleCap{}};
};

TEST(OpPlace, AnOpWithWeightsIsNamedByThem) {
  const TwoLayers m;
  EXPECT_EQ(place_of(m.ops, 5, 1), "matmul \"model.layers.6.self_attn.o_proj.weight\" (layer 6)");
  EXPECT_EQ(place_of(m.ops, 2, 1), "matmul \"model.layers.6.self_attn.q_proj.weight\", \"model.layers.6.self_attn.k_proj.weight\" (layer 6)");
  EXPECT_EQ(place_of(m.ops, 0, 1), "embed \"model.embed_tokens.weight\"");
}

TEST(OpPlace, OpsThatRunAsOneAreAllNamed) {
  const TwoLayers m;
  EXPECT_EQ(place_of(m.ops, 6, 2), "add_norm + matmul \"model.layers.7.self_attn.q_proj.weight\" (layer 7)");
  EXPECT_EQ(place_of(m.ops, 3, 2), "rope_store + paged_attention between \"model.layers.6.self_attn.k_proj.weight\" and \"model.layers.6.self_attn.o_proj.weight\" (layer 6)");
}

TEST(OpPlace, AnOpWithoutWeightsIsNamedByItsNeighbours) {
  const TwoLayers m;
  EXPECT_EQ(place_of(m.ops, 1, 1), "add_norm between \"model.embed_tokens.weight\" and \"model.layers.6.self_attn.q_proj.weight\" (layer 6)");
  EXPECT_EQ(place_of(m.ops, 6, 1), "add_norm between \"model.layers.6.self_attn.o_proj.weight\" and \"model.layers.7.self_attn.q_proj.weight\" (layer 6 or 7)");
  EXPECT_EQ(place_of(m.ops, 10, 1), "scale_cap after \"lm_head.weight\"");
}

TEST(OpPlace, WithoutNamesThereIsStillTheOp) {
  const TwoLayers m;
  const std::vector<Op> ops = {ScaleCap{}, Matmul{.out = {}, .x = {}, .w = {&m.nameless}}};
  EXPECT_EQ(place_of(ops, 0, 1), "scale_cap");
  EXPECT_EQ(place_of(ops, 1, 1), "matmul");
}

}  // namespace
}  // namespace ridge
