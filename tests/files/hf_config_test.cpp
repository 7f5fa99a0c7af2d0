// config.json in its several spellings comes out in one.
#include "files/hf_config.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace ridge {
namespace {

Json normalized(const char* text) { return normalize_config(Json::parse(text), "config.json"); }
nlohmann::json rope(const char* text) { return nlohmann::json(normalized(text)["rope_parameters"]); }

TEST(HfConfig, OldAndNewRopeSpellingsAgree) {
  EXPECT_EQ(rope(R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}})"), rope(R"({"rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 4.0}})"));
  EXPECT_EQ(rope(R"({"rope_theta": 5e5, "rope_scaling": null})"), nlohmann::json::parse(R"({"rope_type": "default", "rope_theta": 5e5})"));
  EXPECT_EQ(rope("{}"), nlohmann::json::parse(R"({"rope_type": "default"})"));      // the base is the family's
  EXPECT_EQ(rope(R"({"rope_scaling": {"rope_type": "llama3", "type": "wrong", "factor": 8.0}})")["rope_type"], "llama3");
  EXPECT_EQ(rope(R"({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 4096})"),
            nlohmann::json::parse(R"({"rope_type": "longrope", "original_max_position_embeddings": 4096})"));
  EXPECT_EQ(rope(R"({"partial_rotary_factor": 0.5})")["partial_rotary_factor"], 0.5);
  const Json config = normalized(R"({"rope_theta": 5e5, "rope_scaling": null})");
  EXPECT_FALSE(config.contains("rope_theta") || config.contains("rope_scaling"));
}

TEST(HfConfig, NumbersThatOnlyPythonHasAreSpelledAsNewerFilesDo) {
  const auto expected = nlohmann::json::parse(R"({"limit": [0.0, {"__float__": "Infinity"}], "low": {"__float__": "-Infinity"}, "text": "\"Infinity, NaN"})");
  EXPECT_EQ(nlohmann::json::parse(without_python_floats(R"({"limit": [0.0, Infinity], "low":-Infinity, "text": "\"Infinity, NaN"})")), expected);
}

TEST(HfConfig, LayerTypesMayHaveRotationsOfTheirOwn) {
  const auto gemma = rope(R"({"model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}})");
  EXPECT_EQ(gemma["full_attention"], nlohmann::json::parse(R"({"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0})"));
  EXPECT_EQ(gemma["sliding_attention"], nlohmann::json::parse(R"({"rope_type": "default", "rope_theta": 1e4})"));
  const auto nested = rope(R"({"rope_parameters": {"full_attention": {"type": "yarn", "factor": 2.0, "rope_theta": 5e5}, "sliding_attention": {"rope_theta": 1e4}}})");
  EXPECT_EQ(nested["full_attention"]["rope_type"], "yarn");
  EXPECT_EQ(nested["sliding_attention"]["rope_type"], "default");
  EXPECT_EQ(rope(R"({"model_type": "olmo3", "rope_theta": 5e5, "rope_scaling": {"rope_type": "yarn", "factor": 8.0}})")["sliding_attention"]["rope_type"], "default");
}

TEST(HfConfig, TheLanguageModelOfAMultimodalOneIsLifted) {
  const Json config = normalized(R"({"model_type": "gemma3", "architectures": ["X"], "eos_token_id": [1, 106], "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 7}})");
  EXPECT_EQ(config["model_type"], "gemma3_text");
  EXPECT_EQ(config["hidden_size"], 2560);
  EXPECT_EQ(config["architectures"][0], "X");
  EXPECT_EQ(config["num_attention_heads"], 8);                       // what Gemma 3's files leave out
  EXPECT_EQ(config["layer_types"][5], "full_attention");
  EXPECT_EQ(config["layer_types"][6], "sliding_attention");
  EXPECT_FALSE(config.contains("text_config"));
}

TEST(HfConfig, WrongTypesAreRefusedByFileAndKey) {
  EXPECT_TRUE(mentions(error_of([] { normalized("[]"); }), {"config.json"}));
  EXPECT_TRUE(mentions(error_of([] { normalized(R"({"text_config": 1})"); }), {"config.json", "text_config"}));
  EXPECT_TRUE(mentions(error_of([] { normalized(R"({"rope_scaling": "linear"})"); }), {"config.json", "rope_scaling"}));
  EXPECT_EQ(normalized(R"({"torch_dtype": "bfloat16"})")["dtype"], "bfloat16");
}

TEST(HfConfig, TokensTemplatesAndIdsAreFoundInAllTheirShapes) {
  EXPECT_EQ(token_text(Json::parse(R"({"eos_token": "</s>"})"), "eos_token"), "</s>");
  EXPECT_EQ(token_text(Json::parse(R"({"eos_token": {"content": "</s>", "lstrip": false}})"), "eos_token"), "</s>");
  EXPECT_EQ(token_text(Json::parse(R"({"eos_token": null})"), "eos_token"), "");
  EXPECT_EQ(template_of(Json::parse(R"({"chat_template": "one"})")), "one");
  EXPECT_EQ(template_of(Json::parse(R"({"chat_template": [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]})")), "three");
  EXPECT_EQ(template_of(Json::parse(R"({"chat_template": 5})")), "");
  std::vector<int32_t> ids;
  append_ids(ids, Json::parse(R"({"eos_token_id": [2, 7, 2]})"), "eos_token_id");
  append_ids(ids, Json::parse(R"({"eos_token_id": 7})"), "eos_token_id");
  append_ids(ids, Json::parse(R"({"eos_token_id": -1})"), "eos_token_id");
  append_ids(ids, Json::parse(R"({"eos_token_id": "x"})"), "eos_token_id");
  EXPECT_EQ(ids, (std::vector<int32_t>{2, 7}));
}

}  // namespace
}  // namespace ridge
