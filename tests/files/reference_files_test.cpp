// Files written by the reference packages (tests/data/files/make_fixtures.py), read by us.
#include <gtest/gtest.h>

#include <cmath>

#include "files/checkpoint.h"
#include "files/gguf_weights.h"
#include "files/safetensors.h"
#include "temporary_folder.h"

namespace ridge {
namespace {

std::vector<float> row_of(const StoredWeight& w, int64_t r) {
  std::vector<float> x(static_cast<size_t>(w.cols));
  decode_stored_row(x.data(), w, r);
  return x;
}

TEST(ReferenceFiles, EveryDtypeOfSafetensorsIsRead) {
  const auto file = open_safetensors_file(data_file("every_dtype.safetensors"));
  EXPECT_EQ(file->container(), "safetensors");
  EXPECT_EQ(safetensors_metadata(*file)["format"], "np");
  for (const char* name : {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"}) EXPECT_EQ(row_of(file->get(name), 0), (std::vector<float>{0.5f, 1, -2})) << name;
  for (const char* name : {"I64", "I32", "I16", "I8"}) EXPECT_EQ(row_of(file->get(name), 0), (std::vector<float>{0, 1, -2})) << name;
  for (const char* name : {"U64", "U32", "U16", "U8"}) EXPECT_EQ(row_of(file->get(name), 0), (std::vector<float>{0, 1, 2})) << name;
  EXPECT_EQ(row_of(file->get("BOOL"), 0), (std::vector<float>{0, 1, 1}));
  EXPECT_EQ(row_of(file->get("scalar"), 0), (std::vector<float>{3.5f}));
  EXPECT_EQ(file->get("empty").rows, 0);
  const StoredWeight cube = file->get("cube");
  EXPECT_EQ(cube.rows, 6);
  EXPECT_EQ(row_of(cube, 4), (std::vector<float>{16, 17, 18, 19}));
}

TEST(ReferenceFiles, TensorsAreHandedOutAtAddressesTheirTypesCanBeReadFrom) {
  // The package packs tensors without padding: behind a BOOL of three bytes nothing is aligned.
  const auto file = open_safetensors_file(data_file("every_dtype.safetensors"));
  for (const TensorInfo& info : file->tensors())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file->get(info.name).codes.data) % static_cast<size_t>(format(info.format).block_bytes), 0u) << info.name;
}

TEST(ReferenceFiles, BlocksOfEveryTypeDecodeAsTheReferenceDecodesThem) {
  const GgufFile file(data_file("blocks.gguf"));
  int n_compared = 0;
  for (const GgufTensor& t : file.tensors()) {
    if (t.name.ends_with(".expected")) continue;
    const auto expected = std::find_if(file.tensors().begin(), file.tensors().end(), [&](const GgufTensor& e) { return e.name == t.name + ".expected"; });
    ASSERT_NE(expected, file.tensors().end()) << t.name;
    EXPECT_EQ(t.type_name, t.name);
    ASSERT_TRUE(format(t.format).readable) << t.name;
    std::vector<float> x(256);
    format(t.format).decode_row(x.data(), t.data, 256);
    const auto* y = reinterpret_cast<const float*>(expected->data);
    for (size_t i = 0; i < 256; ++i) ASSERT_EQ(x[i], y[i]) << t.name << " number " << i;
    ++n_compared;
  }
  EXPECT_EQ(n_compared, 12);
}

TEST(ReferenceFiles, MetadataOfEveryTypeIsRead) {
  const GgufFile file(data_file("llama.gguf"));
  const GgufMetadata& m = file.metadata();
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(m.integer("test.uint8"), 200);
  EXPECT_EQ(m.integer("test.int8"), -5);
  EXPECT_EQ(m.integer("test.uint16"), 60000);
  EXPECT_EQ(m.integer("test.int16"), -30000);
  EXPECT_EQ(m.integer("test.uint32"), 4000000000);
  EXPECT_EQ(m.integer("test.int32"), -2000000000);
  EXPECT_EQ(m.integer("test.int64"), -(int64_t{1} << 62));
  EXPECT_EQ(m.number("test.float32"), 0.25);
  EXPECT_EQ(m.number("test.float64"), 1e300);
  EXPECT_EQ(m.boolean("test.bool"), true);
  EXPECT_EQ(m.string("test.string"), "\xC3\xBC");
  EXPECT_EQ(m.strings("tokenizer.ggml.tokens")->at(3), "\xE2\x96\x81" "a");
  EXPECT_EQ(m.floats("test.floats"), (std::vector<float>{0.5f, -0.5f}));
  EXPECT_EQ(m.integers("tokenizer.ggml.token_type"), (std::vector<int64_t>{2, 3, 3, 1, 6}));
  EXPECT_EQ(m.to_json()["test.nested"], Json::parse("[[1, 2], [3]]"));
  EXPECT_EQ(m.to_json(2)["tokenizer.ggml.tokens"], "(5 values)");
  EXPECT_FALSE(m.integer("absent"));
  EXPECT_TRUE(mentions(error_of([&] { m.integer("test.uint64"); }), {"llama.gguf", "test.uint64", "whole number"}));
  EXPECT_TRUE(mentions(error_of([&] { m.string("test.bool"); }), {"llama.gguf", "test.bool", "not a string"}));
  EXPECT_TRUE(mentions(error_of([&] { m.strings("test.floats"); }), {"test.floats", "list of strings"}));
  EXPECT_TRUE(mentions(error_of([&] { m.floats("test.nested"); }), {"test.nested", "list of numbers"}));
}

TEST(ReferenceFiles, ALlamaOfGgufLooksLikeHuggingFaces) {
  const Checkpoint c = open_checkpoint(data_file("llama.gguf"), CacheFolders{});
  EXPECT_EQ(c.name, "llama.gguf");
  EXPECT_EQ(c.config["model_type"], "llama");
  EXPECT_EQ(c.config["hidden_size"], 32);
  EXPECT_EQ(c.config["head_dim"], 8);
  EXPECT_EQ(c.config["vocab_size"], 5);
  EXPECT_EQ(c.config["tie_word_embeddings"], true);
  EXPECT_EQ(c.config["rope_parameters"], Json::parse(R"({"rope_type": "default", "rope_theta": 500000.0})"));
  EXPECT_EQ(c.bos_token, "<s>");
  EXPECT_EQ(c.eos_token, "</s>");
  EXPECT_EQ(c.eos_ids, std::vector<int32_t>{2});
  EXPECT_EQ(c.bos_id, 1);
  EXPECT_EQ(c.chat_template, "{{ bos_token }}{{ messages[0].content }}");
  ASSERT_TRUE(c.gguf);
  // Rows were numbered before the converter's permutation: seen through this door they count up again.
  const StoredWeight q = c.weights->get("model.layers.0.self_attn.q_proj.weight"), k = c.weights->get("model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(q.format, FormatId::q8_0);
  for (int64_t r = 0; r < 32; ++r) EXPECT_NEAR(row_of(q, r)[0], static_cast<float>(r), 0.15f);
  for (int64_t r = 0; r < 16; ++r) EXPECT_EQ(row_of(k, r)[0], static_cast<float>(r));
  const StoredWeight bias = c.weights->get("model.layers.0.self_attn.q_proj.bias");
  EXPECT_EQ(bias.rows, 1);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(row_of(bias, 0)[i], static_cast<float>(i));
  EXPECT_EQ(row_of(c.weights->get("model.layers.0.post_attention_layernorm.weight"), 0)[0], 3.0f);
  EXPECT_TRUE(c.weights->has("mtp.fc.weight"));
  EXPECT_FALSE(c.weights->has("lm_head.weight"));
  EXPECT_TRUE(mentions(error_of([&] { c.weights->get("model.layers.0.self_attn.q_proj.wieght"); }), {"llama.gguf", "q_proj.wieght", "model.layers.0.self_attn.q_proj.weight"}));
}

}  // namespace
}  // namespace ridge
