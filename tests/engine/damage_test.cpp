// Weights that are not numbers end a request with an error that names the layer and the tensor; a vector that is not numbers is refused when the model loads.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/tiny_model.h"

namespace ridge {
namespace {

std::string error_of_request(const TinyModel& tiny, const std::string& device) {
  Engine engine(tiny.checkpoint(), {.device = device, .max_seqs = 1, .max_batch_tokens = 32});
  engine.submit({.prompt = {3, 4, 5}, .params = {.temperature = 0, .max_tokens = 4}});
  std::string error;
  while (!engine.idle())
    for (const Event& event : engine.step())
      if (event.finish == FinishReason::error) error = event.error;
  return error;
}

TEST(Damage, ARequestNamesTheLayerAndTensorThatHoldNan) {
  for (const char* device : {"ref", "cpu"})
    for (const char* name : {"model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.up_proj.weight", "model.layers.2.mlp.down_proj.weight"}) {
      const std::string error = error_of_request(TinyModel(Json::object(), 0, name), device);
      EXPECT_NE(error.find(name), std::string::npos) << error;
      EXPECT_NE(error.find(fmt::format("layer {};", name[13])), std::string::npos) << error;
    }
}

TEST(Damage, LogitsThatAreNotNumbersAreNotHandedOut) {
  const char* const name = "model.layers.1.mlp.up_proj.weight";
  const TinyModel tiny(Json::object(), 0, name);
  Engine engine(tiny.checkpoint(), {.device = "cpu", .max_seqs = 1, .max_batch_tokens = 32});
  engine.set_logits_sink([](uint64_t, int, std::span<const float>) { FAIL() << "somebody got them"; });
  engine.submit({.prompt = {3, 4, 5}, .params = {.temperature = 0, .max_tokens = 0}, .wants_all_logits = true});
  std::string error;
  while (!engine.idle())
    for (const Event& event : engine.step()) error += event.error;
  EXPECT_NE(error.find(name), std::string::npos) << error;
}

TEST(Damage, WhatLiesOutsideOfLayersIsNamedToo) {
  const std::string error = error_of_request(TinyModel(Json::object(), 0, "lm_head.weight"), "ref");
  EXPECT_NE(error.find("the head"), std::string::npos) << error;
  EXPECT_NE(error.find("lm_head.weight"), std::string::npos) << error;
}

TEST(Damage, AVectorOfNanIsRefusedWhenTheModelLoads) {
  const TinyModel tiny(Json::object(), 0, "model.layers.1.input_layernorm.weight");
  try {
    Engine engine(tiny.checkpoint(), {.device = "ref", .max_seqs = 1});
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("model.layers.1.input_layernorm.weight"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ridge
