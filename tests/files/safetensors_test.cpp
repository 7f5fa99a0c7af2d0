// Safetensors that are true, and every way in which a header can lie.
#include <gtest/gtest.h>

#include <random>

#include "files/safetensors.h"
#include "files/safetensors_writer.h"
#include "temporary_folder.h"

namespace ridge {
namespace {

std::string safetensors(const std::string& header, size_t data_bytes) { return raw<uint64_t>(header.size()) + header + std::string(data_bytes, 'x'); }

std::string refusal(const std::string& bytes) {
  const TemporaryFolder folder;
  const std::string path = folder.write("m.safetensors", bytes);
  const std::string message = error_of([&] { open_safetensors_file(path); });
  EXPECT_TRUE(mentions(message, {"m.safetensors"}));
  return message;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

TEST(Safetensors, ALyingHeaderIsRefusedByFileAndTensor) {
  EXPECT_TRUE(mentions(refusal(""), {"truncated"}));
  EXPECT_TRUE(mentions(refusal("1234567"), {"truncated"}));
  EXPECT_TRUE(mentions(refusal(raw<uint64_t>(1000) + "{}"), {"1000", "truncated"}));
  EXPECT_TRUE(mentions(refusal(raw<uint64_t>(~0ull) + "{}"), {"18446744073709551615"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{", 0)), {"not valid JSON"}));
  EXPECT_TRUE(mentions(refusal(safetensors("[]", 0)), {"not a JSON object"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{\"a\":1}", 0)), {"'a'", "not a JSON object"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4)), {"'a'", "data_offsets"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F99", "[1]", "[0,4]") + "}", 4)), {"'a'", "F99"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[-1]", "[0,4]") + "}", 4)), {"'a'", "-1"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[1.5]", "[0,4]") + "}", 4)), {"'a'", "1.5"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "\"1\"", "[0,4]") + "}", 4)), {"'a'", "shape"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[4294967296,4294967296]", "[0,4]") + "}", 4)), {"'a'", "larger than any file"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F64", "[2305843009213693952]", "[0,0]") + "}", 0)), {"'a'", "larger than any file"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[1]", "[0]") + "}", 4)), {"'a'", "[begin, end]"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[1]", "[4,0]") + "}", 4)), {"'a'", "4 to 0"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[2]", "[0,8]") + "}", 4)), {"'a'", "0 to 8", "4 bytes", "truncated"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[1]", "[0,18446744073709551615]") + "}", 4)), {"'a'", "18446744073709551615"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[1]", "[0,99999999999999999999]") + "}", 4)), {"'a'", "data offset"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[2]", "[0,4]") + "}", 4)), {"'a'", "needs 8 bytes", "4"}));
}

TEST(Safetensors, OverlapsHolesAndTwinsAreRefused) {
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[2]", "[4,12]") + "}", 12)), {"'a'", "'b'", "overlap"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[8,12]") + "}", 12)), {"'a'", "'b'", "4 bytes"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[1]", "[0,4]") + "}", 12)), {"'a'", "8 bytes"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("a", "F32", "[1]", "[4,8]") + "}", 8)), {"'a'", "twice"}));
  EXPECT_TRUE(mentions(refusal(safetensors("{\"__metadata__\":{\"k\":1}}", 0)), {"__metadata__", "'k'"}));
}

TEST(Safetensors, DeepNestingAndHugeHeadersCostNothing) {
  EXPECT_TRUE(mentions(refusal(safetensors(std::string(1 << 20, '['), 0)), {"nested deeper"}));
  EXPECT_TRUE(mentions(refusal(raw<uint64_t>(200'000'000) + "{}"), {"200000000"}));
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const TemporaryFolder folder;
  std::vector<float> x = {1, -2, 3.5f, 0.25f, 5, 6};
  std::vector<TensorSource> tensors = {f32_source("b.matrix", {2, 3}, x), f32_source("a.vector", {6}, x), f32_source("nothing", {0}, {})};
  tensors.push_back({.name = "half", .format = FormatId::bf16, .shape = {3, 2}, .encode_row = [&](std::byte* out, int64_t r) { format(FormatId::bf16).encode_row(out, x.data() + 2 * r, 2); }});
  write_safetensors(folder.file("w.safetensors"), tensors, {{"origin", "test"}});
  const auto file = open_safetensors_file(folder.file("w.safetensors"));
  EXPECT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(safetensors_metadata(*file)["origin"], "test");
  float y[3];
  decode_stored_row(y, file->get("b.matrix"), 1);
  EXPECT_EQ(y[2], 6.0f);
  decode_stored_row(y, file->get("half"), 1);
  EXPECT_EQ(y[1], 0.25f);
  EXPECT_EQ(file->get("a.vector").cols, 6);
}

TEST(Safetensors, AFailedWriteLeavesNothing) {
  const TemporaryFolder folder;
  const TensorSource broken{.name = "x", .format = FormatId::f32, .shape = {100, 4}, .encode_row = [](std::byte*, int64_t r) { if (r == 50) fail("no row {}", r); }};
  EXPECT_TRUE(mentions(error_of([&] { write_safetensors(folder.file("w.safetensors"), {broken}); }), {"no row 50"}));
  EXPECT_TRUE(mentions(error_of([&] { write_safetensors(folder.file("w.safetensors"), {{.name = "q", .format = FormatId::q8_0, .shape = {1, 32}}}); }), {"'q'", "q8_0", ".gguf"}));
  EXPECT_EQ(folder.n_files(), 0u);
}

class Shards : public ::testing::Test {
 protected:
  Shards() {
    write_safetensors(folder.file("one.safetensors"), {f32_source("a", {1}, {1})});
    write_safetensors(folder.file("two.safetensors"), {f32_source("b", {1}, {2})});
  }
  std::string refusal(const std::string& index) {
    folder.write("model.safetensors.index.json", index);
    const std::string message = error_of([&] { open_safetensors_folder(folder.path(), Json::object()); });
    EXPECT_TRUE(mentions(message, {"model.safetensors.index.json"}));
    return message;
  }
  TemporaryFolder folder;
};

TEST_F(Shards, AnIndexJoinsThem) {
  folder.write("model.safetensors.index.json", R"({"metadata": {"total_size": 8}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  const auto file = open_safetensors_folder(folder.path(), Json::object());
  EXPECT_EQ(file->container(), "safetensors, 2 shards");
  EXPECT_TRUE(file->has("a") && file->has("b") && !file->has("c"));
  EXPECT_NE(file->tensors()[0].file, file->tensors()[1].file);
}

TEST_F(Shards, AFalseIndexIsRefused) {
  EXPECT_TRUE(mentions(refusal("{}"), {"weight_map"}));
  EXPECT_TRUE(mentions(refusal(R"({"weight_map": {"a": 1}})"), {"'a'"}));
  EXPECT_TRUE(mentions(refusal(R"({"weight_map": {"a": "three.safetensors"}})"), {"three.safetensors", "missing"}));
  EXPECT_TRUE(mentions(refusal(R"({"weight_map": {"a": "../one.safetensors"}})"), {"../one.safetensors", "not a file of this folder"}));
  EXPECT_TRUE(mentions(refusal(R"({"weight_map": {"a": "/etc/passwd"}})"), {"/etc/passwd"}));
  EXPECT_TRUE(mentions(refusal(R"({"weight_map": {"a": ""}})"), {"not a file"}));
  EXPECT_TRUE(mentions(refusal(R"({"weight_map": {"a": "two.safetensors"}})"), {"'a'", "two.safetensors"}));
  EXPECT_TRUE(mentions(refusal(R"({"weight_map": {"a": "one.safetensors", "c": "two.safetensors"}})"), {"'c'", "two.safetensors"}));
  EXPECT_TRUE(mentions(refusal(R"({"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}})"), {"'a'", "twice"}));
}

TEST_F(Shards, AnIndexThatNamesItselfIsNotFollowedInCircles) {
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "model.safetensors.index.json"}})");
  EXPECT_TRUE(mentions(error_of([&] { open_safetensors_folder(folder.path(), Json::object()); }), {"model.safetensors.index.json", "header claims"}));
}

TEST_F(Shards, ATensorInTwoShardsIsRefused) {
  write_safetensors(folder.file("two.safetensors"), {f32_source("a", {1}, {2}), f32_source("b", {1}, {2})});
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  EXPECT_TRUE(mentions(error_of([&] { open_safetensors_folder(folder.path(), Json::object()); }), {"'a'", "twice", "two.safetensors", "one.safetensors"}));
}

}  // namespace
}  // namespace ridge
