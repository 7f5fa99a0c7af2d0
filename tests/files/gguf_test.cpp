// GGUF files built byte by byte: true ones of both versions, and every way in which a header can lie.
#include "files/gguf.h"

#include <gtest/gtest.h>

#include "files/gguf_writer.h"
#include "temporary_folder.h"

namespace ridge {
namespace {

std::string text(std::string_view s) { return raw<uint64_t>(s.size()) + std::string(s); }
std::string pair_u32(std::string_view key, uint32_t v) { return text(key) + raw<uint32_t>(4) + raw(v); }

struct Parts {
  uint32_t version = 3;
  std::vector<std::string> pairs, tensors;
  std::string data;
  int64_t n_tensors = -1, n_pairs = -1;     // what the header claims; the truth when negative

  std::string bytes() const {
    std::string s = "GGUF" + raw(version) + raw<uint64_t>(n_tensors < 0 ? tensors.size() : static_cast<uint64_t>(n_tensors)) + raw<uint64_t>(n_pairs < 0 ? pairs.size() : static_cast<uint64_t>(n_pairs));
    for (const auto& p : pairs) s += p;
    for (const auto& t : tensors) s += t;
    s.resize((s.size() + 31) / 32 * 32);
    return s + data;
  }
};

std::string tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
  std::string s = text(name) + raw<uint32_t>(static_cast<uint32_t>(dims.size()));
  for (const uint64_t d : dims) s += raw(d);
  return s + raw(type) + raw(offset);
}

std::string gguf_refusal(const std::string& bytes) {
  const TemporaryFolder folder;
  const std::string path = folder.write("m.gguf", bytes);
  const std::string message = error_of([&] { const GgufFile file(path); });
  EXPECT_TRUE(mentions(message, {"m.gguf"}));
  return message;
}

TEST(Gguf, VersionsTwoAndThreeAreRead) {
  for (const uint32_t version : {2u, 3u}) {
    const TemporaryFolder folder;
    const GgufFile file(folder.write("m.gguf", Parts{.version = version, .pairs = {pair_u32("n", 7)}, .tensors = {tensor("t", {4, 1}, 0, 0)}, .data = std::string(16, '\0')}.bytes()));
    EXPECT_EQ(file.metadata().integer("n"), 7);
    ASSERT_EQ(file.tensors().size(), 1u);
    EXPECT_EQ(file.tensors()[0].shape, (std::vector<int64_t>{1, 4}));
  }
}

TEST(Gguf, LyingHeadersAreRefusedByFileAndKey) {
  EXPECT_TRUE(mentions(gguf_refusal(""), {"not a GGUF file"}));
  EXPECT_TRUE(mentions(gguf_refusal("GGML1234"), {"not a GGUF file"}));
  EXPECT_TRUE(mentions(gguf_refusal("GGUF"), {"version", "truncated"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.version = 1}.bytes()), {"version 1"}));
  EXPECT_TRUE(mentions(gguf_refusal("GGUF" + std::string("\0\0\0\3", 4) + std::string(16, '\0')), {"big-endian"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.n_tensors = INT64_MAX}.bytes()), {"9223372036854775807 tensors"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.n_pairs = INT64_MAX}.bytes()), {"9223372036854775807 metadata pairs"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.pairs = {raw<uint64_t>(1ull << 60) + "key"}}.bytes()), {"metadata key", "truncated"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.pairs = {text("k") + raw<uint32_t>(99) + raw<uint64_t>(0)}}.bytes()), {"'k'", "99"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.pairs = {text("k") + raw<uint32_t>(8) + raw<uint64_t>(1ull << 40)}}.bytes()), {"'k'", "truncated"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.pairs = {text("k") + raw<uint32_t>(9) + raw<uint32_t>(8) + raw<uint64_t>(1ull << 61)}}.bytes()), {"'k'", "2305843009213693952"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.pairs = {text("k") + raw<uint32_t>(9) + raw<uint32_t>(12) + raw<uint64_t>(1ull << 61)}}.bytes()), {"'k'", "2305843009213693952"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.pairs = {pair_u32("k", 1), pair_u32("k", 2)}}.bytes()), {"'k'", "twice"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.pairs = {pair_u32("", 1)}}.bytes()), {"not a name"}));
  std::string nested = text("k") + raw<uint32_t>(9);
  for (int i = 0; i < 100; ++i) nested += raw<uint32_t>(9) + raw<uint64_t>(1);
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.pairs = {nested}}.bytes()), {"'k'", "nested deeper"}));
}

TEST(Gguf, LyingTensorsAreRefusedByName) {
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.tensors = {tensor("t", {4}, 0, 0)}}.bytes()), {"'t'", "16 bytes", "truncated"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.tensors = {tensor("t", {4}, 0, 1ull << 62)}, .data = std::string(16, '\0')}.bytes()), {"'t'", "4611686018427387904"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.tensors = {tensor("t", {1ull << 63}, 0, 0)}}.bytes()), {"'t'", "9223372036854775808"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.tensors = {tensor("t", {1ull << 32, 1ull << 32}, 0, 0)}}.bytes()), {"'t'", "overflow"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.tensors = {tensor("t", {33}, 8, 0)}, .data = std::string(68, '\0')}.bytes()), {"'t'", "Q8_0", "32"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.tensors = {tensor("t", std::vector<uint64_t>(9, 1), 0, 0)}}.bytes()), {"'t'", "9 dimensions"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.tensors = {tensor("t", {4}, 0, 8)}, .data = std::string(64, '\0')}.bytes()), {"'t'", "offset 8", "32"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.tensors = {tensor("t", {4}, 0, 0), tensor("t", {4}, 0, 32)}, .data = std::string(64, '\0')}.bytes()), {"'t'", "twice"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.tensors = {tensor("t", {16}, 0, 0), tensor("u", {4}, 0, 32)}, .data = std::string(96, '\0')}.bytes()), {"'t'", "'u'", "overlap"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.pairs = {pair_u32("general.alignment", 24)}}.bytes()), {"general.alignment", "24"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.pairs = {pair_u32("general.alignment", 0)}}.bytes()), {"general.alignment"}));
  EXPECT_TRUE(mentions(gguf_refusal(Parts{.pairs = {text("general.alignment") + raw<uint32_t>(8) + text("32")}}.bytes()), {"general.alignment"}));
}

TEST(Gguf, TensorsOfTypesWeCannotReadAreListed) {
  const TemporaryFolder folder;
  const GgufFile file(folder.write("m.gguf", Parts{.tensors = {tensor("iq", {256}, 16, 0), tensor("new", {7}, 999, 96)}, .data = std::string(128, '\0')}.bytes()));
  EXPECT_EQ(file.tensors()[0].type_name, "IQ2_XXS");
  EXPECT_EQ(file.tensors()[0].bytes, 66u);
  EXPECT_EQ(file.tensors()[1].format, FormatId::unknown);
}

TEST(Gguf, WhatIsWrittenIsReadBack) {
  const TemporaryFolder folder;
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  const std::vector<GgufPair> pairs = {{"a.text", "h\xC3\xA9"}, {"a.bool", true}, {"a.small", 7}, {"a.negative", -7}, {"a.large", uint64_t{1} << 40}, {"a.fraction", 0.5},
                                       {"a.strings", {"x", "y"}}, {"a.numbers", {1, -2}}, {"a.fractions", {0.5, 1.5}}, {"a.bools", {true, false}}, {"a.empty", Json::array()}};
  write_gguf(folder.file("w.gguf"), pairs, {f32_source("first", {2, 3}, x), f32_source("second", {6}, x)});
  const GgufFile file(folder.file("w.gguf"));
  const GgufMetadata& m = file.metadata();
  EXPECT_EQ(m.string("a.text"), "h\xC3\xA9");
  EXPECT_EQ(m.boolean("a.bool"), true);
  EXPECT_EQ(m.integer("a.negative"), -7);
  EXPECT_EQ(m.integer("a.large"), int64_t{1} << 40);
  EXPECT_EQ(m.number("a.fraction"), 0.5);
  EXPECT_EQ(m.strings("a.strings")->at(1), "y");
  EXPECT_EQ(m.integers("a.numbers"), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(m.integers("a.bools"), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(m.floats("a.fractions"), (std::vector<float>{0.5f, 1.5f}));
  EXPECT_EQ(m.count("a.empty"), 0u);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(reinterpret_cast<const float*>(file.tensors()[1].data)[5], 6.0f);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.tensors()[1].data) % 32, 0u);
  EXPECT_TRUE(mentions(error_of([&] { write_gguf(folder.file("x.gguf"), {{"bad", {1, "a"}}}, {}); }), {"x.gguf", "'bad'"}));
  EXPECT_TRUE(mentions(error_of([&] { write_gguf(folder.file("x.gguf"), {{"bad", nullptr}}, {}); }), {"x.gguf", "'bad'"}));
  EXPECT_EQ(folder.n_files(), 1u);
}

}  // namespace
}  // namespace ridge
