// Finding a model by path, by name in our cache and by org/name in Hugging Face's; what belongs to it; and what is said when it is not there.
#include "files/checkpoint.h"

#include <gtest/gtest.h>

#include "files/gguf_writer.h"
#include "files/safetensors_writer.h"
#include "temporary_folder.h"

namespace ridge {
namespace {

class Checkpoints : public ::testing::Test {
 protected:
  void make_folder(const std::string& folder) const {
    top.write(folder + "/config.json", R"({"model_type": "llama", "vocab_size": 4, "eos_token_id": 2, "rope_theta": 1e4})");
    write_safetensors(top.file(folder + "/model.safetensors"), {f32_source("model.norm.weight", {2}, {1, 2})}, {{"format", "pt"}});
  }
  void make_gguf(const std::string& file) const {
    std::filesystem::create_directories(std::filesystem::path(top.file(file)).parent_path());
    const Json config = {{"model_type", "llama"}, {"hidden_size", 2}, {"num_hidden_layers", 1}, {"num_attention_heads", 1}, {"intermediate_size", 2}, {"vocab_size", 4}};
    write_gguf_model(top.file(file), config, {{"general.sampling.temp", 0.5}}, {f32_source("model.norm.weight", {2}, {1, 2})});
  }
  TemporaryFolder top;
  CacheFolders folders{.hub = top.file("hub"), .ridge = top.file("ridge")};
};

TEST_F(Checkpoints, AFolderBringsAllThatBelongsToIt) {
  make_folder("my-model");
  top.write("my-model/generation_config.json", R"({"eos_token_id": [3, 2], "temperature": 0.6})");
  top.write("my-model/tokenizer.json", R"({"added_tokens": [{"id": 1, "content": "<s>"}, {"id": 9, "content": "</s>]"}], "model": {}})");
  top.write("my-model/tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>]", "chat_template": "from the config"})");
  const Checkpoint c = open_checkpoint(top.file("my-model"), folders);
  EXPECT_EQ(c.name, "my-model");
  EXPECT_EQ(c.config["rope_parameters"]["rope_theta"], 1e4);
  EXPECT_EQ(c.generation_config["temperature"], 0.6);
  EXPECT_EQ(c.metadata["format"], "pt");
  EXPECT_EQ(c.eos_ids, (std::vector<int32_t>{3, 2, 9}));
  EXPECT_EQ(c.bos_id, 1);
  EXPECT_EQ(c.bos_token, "<s>");
  EXPECT_EQ(c.chat_template, "from the config");
  EXPECT_FALSE(c.gguf);
  EXPECT_TRUE(c.weights->has("model.norm.weight"));
  top.write("my-model/chat_template.jinja", "from the file");
  EXPECT_EQ(open_checkpoint(top.file("my-model") + "/", folders).chat_template, "from the file");
  EXPECT_EQ(open_checkpoint(top.file("my-model") + "/", folders).name, "my-model");
}

TEST_F(Checkpoints, WeightsAreOnlyNeededWhenAskedFor) {
  top.write("bare/config.json", R"({"model_type": "llama"})");
  EXPECT_FALSE(open_checkpoint(top.file("bare"), folders, false).weights);
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint(top.file("bare"), folders); }), {"bare", "safetensors"}));
}

TEST_F(Checkpoints, NamesAreFoundInOurCache) {
  make_gguf("ridge/models/smollm2/smollm2.gguf");
  make_folder("ridge/models/other");
  EXPECT_TRUE(names_a_model("smollm2", folders));
  const Checkpoint c = open_checkpoint("smollm2", folders);
  EXPECT_EQ(c.name, "smollm2");
  EXPECT_EQ(c.path, top.file("ridge/models/smollm2/smollm2.gguf"));
  EXPECT_EQ(c.generation_config["temperature"], 0.5);
  EXPECT_EQ(open_checkpoint("other", folders).weights->container(), "safetensors");
  EXPECT_FALSE(names_a_model("../models/other", folders));
}

TEST_F(Checkpoints, OrgAndNameAreFoundInHuggingFacesCache) {
  make_folder("hub/models--org--name/snapshots/abc123");
  EXPECT_TRUE(names_a_model("org/name", folders));                   // one snapshot needs no ref
  make_folder("hub/models--org--name/snapshots/def456");
  EXPECT_FALSE(names_a_model("org/name", folders));
  top.write("hub/models--org--name/refs/main", "def456\n");
  const Checkpoint c = open_checkpoint("org/name", folders);
  EXPECT_EQ(c.name, "org/name");
  EXPECT_EQ(c.path, top.file("hub/models--org--name/snapshots/def456"));
  top.write("hub/models--org--name/refs/main", "../../../elsewhere");
  EXPECT_FALSE(names_a_model("org/name", folders));
  make_gguf("hub/models--org--gguf/snapshots/1/model.gguf");
  EXPECT_EQ(open_checkpoint("org/gguf", folders).weights->container(), "GGUF v3");
  const auto listed = list_cached_models(folders);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].name, "org/gguf");
}

TEST_F(Checkpoints, APromptIsNotAModel) {
  const std::vector<std::string> prompts{"What is the capital of France?", "", "hello", "a/b/c", "..", ".", "/", "org/", std::string("x\0y", 3), std::string(100000, 'a')};
  for (const std::string& prompt : prompts)
    EXPECT_FALSE(names_a_model(prompt, folders)) << prompt.substr(0, 40);
}

TEST_F(Checkpoints, WhatIsNotThereIsSaidWithWhereItWasSoughtAndHowToGetIt) {
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint("org/absent", folders); }), {"org/absent", folders.hub, "ridge pull org/absent"}));
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint("absent", folders); }), {"'absent'", folders.ridge, "ridge pull"}));
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint("/no/such/file.gguf", folders); }), {"/no/such/file.gguf"}));
  std::filesystem::create_directories(top.file("empty"));
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint(top.file("empty"), folders); }), {"empty", "no model"}));
  make_gguf("several/a.gguf");
  make_gguf("several/b.gguf");
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint(top.file("several"), folders); }), {"several", "2 .gguf files"}));
}

TEST_F(Checkpoints, DamagedTextFilesAreRefusedByName) {
  make_folder("m");
  top.write("m/generation_config.json", "[1]");
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint(top.file("m"), folders); }), {"generation_config.json", "not a JSON object"}));
  top.write("m/generation_config.json", "{");
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint(top.file("m"), folders); }), {"generation_config.json", "line 1"}));
  top.write("m/generation_config.json", "{}");
  top.write("m/config.json", "{\"a\": }");
  EXPECT_TRUE(mentions(error_of([&] { open_checkpoint(top.file("m"), folders); }), {"config.json"}));
}

TEST_F(Checkpoints, Gpt2sMatricesHaveOutputFeaturesAsRowsInEitherContainer) {
  // Conv1D keeps [in, out]: two inputs, three outputs.
  top.write("gpt2/config.json", R"({"model_type": "gpt2", "n_embd": 2, "n_head": 1, "n_layer": 1, "n_positions": 8, "layer_norm_epsilon": 1e-5, "vocab_size": 4})");
  write_safetensors(top.file("gpt2/model.safetensors"), {f32_source("h.0.attn.c_attn.weight", {2, 3}, {1, 2, 3, 4, 5, 6}), f32_source("wte.weight", {4, 2}, std::vector<float>(8))});
  const Checkpoint a = open_checkpoint(top.file("gpt2"), folders);
  std::vector<TensorSource> tensors;
  for (const TensorInfo& info : a.weights->tensors()) {
    tensors.push_back(converted(*a.weights, info, FormatId::f32));
    tensors.back().name = "transformer." + info.name;
  }
  write_gguf_model(top.file("gpt2.gguf"), a.config, {}, tensors);
  const Checkpoint b = open_checkpoint(top.file("gpt2.gguf"), folders);
  for (const Checkpoint* c : {&a, &b}) {
    const StoredWeight w = c->weights->get("transformer.h.0.attn.c_attn.weight");
    EXPECT_EQ(w.rows, 3);
    EXPECT_EQ(w.cols, 2);
    float x[2];
    decode_stored_row(x, w, 1);
    EXPECT_EQ(x[0], 2.0f);
    EXPECT_EQ(x[1], 5.0f);
  }
}

}  // namespace
}  // namespace ridge
