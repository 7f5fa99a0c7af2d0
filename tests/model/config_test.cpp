// Configs and tensors are untrusted: what is wrong, or would change the result without being handled, is refused with the key or the tensor, its value and what
// would work. Each case changes one thing of a good checkpoint.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "files/checkpoint.h"
#include "model/config.h"
#include "model/model.h"
#include "ref/ref_backend.h"

namespace ridge {
namespace {

const std::string kGolden = RIDGE_SOURCE_DIR "/tests/data/golden/";

std::string message_of(const Checkpoint& checkpoint, ModelOptions options = {.activations = FormatId::f32, .kv_format = FormatId::f32}) {
  const auto backend = make_ref_backend();
  try {
    load_model(checkpoint, *backend, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

// The message when `key` (a path like "/rope_parameters/factor") of a case's config becomes `value`.
std::string message_with(const char* name, const char* key, const Json& value) {
  Checkpoint checkpoint = open_checkpoint(kGolden + name);
  checkpoint.config[Json::json_pointer(key)] = value;
  return message_of(checkpoint);
}

std::string message_without(const char* name, const char* key) {
  Checkpoint checkpoint = open_checkpoint(kGolden + name);
  checkpoint.config.erase(key);
  return message_of(checkpoint);
}

void expect_says(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << "\"" << part << "\" is not in: " << message;
}

// A checkpoint's tensors with one renamed: under its old name it is missing, under its new one nobody asks for it.
class Renamed : public WeightFile {
 public:
  Renamed(std::unique_ptr<WeightFile> inner, std::string from, std::string to) : inner_(std::move(inner)), from_(std::move(from)), to_(std::move(to)), tensors_(inner_->tensors()) {
    for (TensorInfo& t : tensors_)
      if (t.name == from_) t.name = to_;
  }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  bool has(std::string_view name) const override { return name == to_ || (name != from_ && inner_->has(name)); }
  StoredWeight get(std::string_view name) const override { return inner_->get(name == to_ ? from_ : name == from_ ? "no.such.tensor" : name); }
  std::string container() const override { return inner_->container(); }

 private:
  std::unique_ptr<WeightFile> inner_;
  std::string from_, to_;
  std::vector<TensorInfo> tensors_;
};

TEST(Config, ReadsTypedValuesAndNamesWhatIsWrong) {
  const Json json = Json::parse(R"({"a": 5, "b": 2.5, "c": "text", "d": null, "e": true, "f": 1e300, "g": [1, 2, "x"], "h": 5.0})");
  const Config config(json, "test.json");
  EXPECT_EQ(config.integer("a", 1, 10), 5);
  EXPECT_EQ(config.integer("h", 1, 10), 5);
  EXPECT_EQ(config.integer_or("d", 7, 0, 10), 7);
  EXPECT_EQ(config.number("b", 0, 10), 2.5);
  EXPECT_TRUE(config.flag_or("e", false));
  EXPECT_FALSE(config.has("d"));
  const auto says = [](auto&& call, std::initializer_list<const char*> parts) {
    try {
      call();
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      expect_says(e.what(), parts);
    }
  };
  says([&] { config.integer("a", 6, 10); }, {"test.json", "\"a\"", "5", "6 to 10"});
  says([&] { config.integer("b", 0, 10); }, {"\"b\"", "2.5", "whole"});
  says([&] { config.integer("c", 0, 10); }, {"\"c\"", "\"text\"", "not a number"});
  says([&] { config.integer("f", 0, 1ll << 62); }, {"\"f\"", "1e+300"});
  says([&] { config.integer("missing", 0, 10); }, {"\"missing\"", "missing"});
  says([&] { config.flag_or("a", false); }, {"\"a\"", "true or false"});
  says([&] { config.numbers("g", 3, 0, 10); }, {"\"g\"", "\"x\""});
  says([&] { config.numbers("g", 2, 0, 10); }, {"\"g\"", "3 entries where 2"});
  says([&] { config.text("a"); }, {"\"a\"", "not a string"});
}

TEST(LoadModel, UnknownFamilyIsRefusedWithTheNearestKnownOnes) {
  expect_says(message_with("llama", "/model_type", "lama"), {"model_type", "\"lama\"", "llama", "gemma2"});
  expect_says(message_without("llama", "model_type"), {"model_type", "missing"});
}

TEST(LoadModel, AbsurdSizesAreRefused) {
  expect_says(message_with("llama", "/hidden_size", int64_t{1} << 40), {"hidden_size", "1099511627776"});
  expect_says(message_with("llama", "/num_hidden_layers", -1), {"num_hidden_layers", "-1"});
  expect_says(message_with("llama", "/vocab_size", "256"), {"vocab_size", "\"256\""});
  expect_says(message_with("llama", "/num_attention_heads", 0), {"num_attention_heads", "0"});
  expect_says(message_with("llama", "/num_key_value_heads", 3), {"num_key_value_heads", "3", "divide"});
  expect_says(message_with("llama", "/rms_norm_eps", -1.0), {"rms_norm_eps"});
  expect_says(message_with("gpt2", "/n_head", 5), {"n_head", "5", "divide"});
  expect_says(message_without("llama", "hidden_size"), {"hidden_size", "missing"});
}

TEST(LoadModel, AShapeThatTheConfigDoesNotPromiseNamesTheTensorAndBothShapes) {
  expect_says(message_with("llama", "/intermediate_size", 96), {"model.layers.0.mlp.gate_proj.weight", "[128, 64]", "[96, 64]"});
  expect_says(message_with("llama", "/vocab_size", 255), {"model.embed_tokens.weight", "[256, 64]", "[255, 64]"});
  expect_says(message_with("qwen3", "/head_dim", 16), {"model.layers.0.self_attn.q_proj.weight", "[128, 64]", "[64, 64]"});
  expect_says(message_with("phi3_longrope_cross", "/num_key_value_heads", 4), {"qkv_proj.weight", "[128, 64]", "[192, 64]"});
}

TEST(LoadModel, MissingAndSuperfluousTensorsAreRefusedByName) {
  expect_says(message_with("llama", "/num_hidden_layers", 3), {"model.layers.2.", "weight"});
  expect_says(message_with("llama", "/model_type", "gemma2"), {"_feedforward_layernorm.weight"});
  expect_says(message_with("qwen2", "/model_type", "llama"), {"_proj.bias", "llama"});
  expect_says(message_with("qwen3", "/model_type", "llama"), {"_norm.weight", "llama"});
}

TEST(LoadModel, TensorsOfOtherPartsAreLeftAlone) {
  Checkpoint checkpoint = open_checkpoint(kGolden + "llama");
  checkpoint.config["tie_word_embeddings"] = true;
  checkpoint.weights = std::make_unique<Renamed>(std::move(checkpoint.weights), "lm_head.weight", "mtp.fc.weight");
  EXPECT_EQ(message_of(checkpoint), "accepted");
}

TEST(LoadModel, WhatAFamilyDoesNotComputeIsRefused) {
  expect_says(message_with("llama", "/hidden_act", "mish"), {"hidden_act", "\"mish\"", "silu"});
  expect_says(message_with("llama", "/rope_parameters/rope_type", "spiral"), {"rope_type", "\"spiral\"", "yarn"});
  expect_says(message_with("llama", "/quantization_config", {{"quant_method", "gptq"}}), {"quant_method", "\"gptq\"", "modelopt"});
  expect_says(message_with("llama", "/attention_bias", true), {"q_proj.bias"});
  expect_says(message_with("mistral_swa", "/attention_bias", true), {"attention_bias", "true"});
  expect_says(message_with("mistral_swa", "/layer_types", {"full_attention", "sliding_attention"}), {"layer_types"});
  expect_says(message_with("gemma2", "/layer_types", {"full_attention", "linear_attention"}), {"layer_types", "linear_attention"});
  expect_says(message_with("gemma2", "/layer_types", {"full_attention"}), {"layer_types", "1 entries where 2"});
  expect_says(message_with("gemma2", "/sliding_window", nullptr), {"sliding_window"});
  expect_says(message_with("gemma3", "/use_bidirectional_attention", true), {"use_bidirectional_attention"});
  expect_says(message_with("gpt2", "/add_cross_attention", true), {"add_cross_attention"});
  expect_says(message_with("smollm3", "/no_rope_layers", {1}), {"no_rope_layers"});
  expect_says(message_with("qwen2", "/use_mrope", true), {"use_mrope"});
}

TEST(LoadModel, AnyWrongValueOfAnyKeyIsAcceptedOrRefusedButNeverCrashes) {
  const std::vector<Json> wrong = {nullptr, -1, 0, 1, 3, 0.5, -1e300, int64_t{1} << 62, true, "", "x", Json::array(), Json::array({1, "x", nullptr}), Json::object()};
  int n_refused = 0, n_accepted = 0;
  for (const char* name : {"llama_yarn", "phi3_longrope_cross", "gpt2", "smollm3", "gemma3"}) {
    Checkpoint checkpoint = open_checkpoint(kGolden + name);
    const Json good = checkpoint.config, flat = good.flatten();
    std::vector<std::string> keys;
    for (const auto& [key, value] : good.items()) keys.push_back("/" + key);
    for (const auto& [key, value] : flat.items())
      if (std::count(key.begin(), key.end(), '/') > 1) keys.push_back(key);
    for (const std::string& key : keys)
      for (const Json& value : wrong) {
        checkpoint.config = good;
        checkpoint.config[Json::json_pointer(key)] = value;
        (message_of(checkpoint) == "accepted" ? n_accepted : n_refused)++;
      }
  }
  EXPECT_GT(n_refused, 500);
  EXPECT_GT(n_accepted, 500);                // bos_token_id and the like are not ours to judge
}

TEST(LoadModel, KvFormatsThatAModelCannotHaveAreRefused) {
  expect_says(message_of(open_checkpoint(kGolden + "llama"), {.kv_format = FormatId::q8_0}), {"q8_0", "bf16"});
  expect_says(message_of(open_checkpoint(kGolden + "deepseek_v32"), {.kv_format = FormatId::fp8_e4m3}), {"latent attention", "fp8", "bf16"});
}

TEST(LoadModel, SlidingLayersAskForTheirOwnKv) {
  const auto backend = make_ref_backend();
  const auto model = load_model(open_checkpoint(kGolden + "gemma2"), *backend, {.kv_format = FormatId::bf16});
  ASSERT_EQ(model->kv_specs.size(), 2u);
  EXPECT_EQ(model->kv_specs[0].window, 16);
  EXPECT_EQ(model->kv_specs[1].window, 0);
  EXPECT_EQ(model->kv_specs[0].planes[1].format, FormatId::bf16);
}

TEST(LoadModel, SizesByComponentCoverEveryTensorOnce) {
  const auto backend = make_ref_backend();
  for (const char* name : {"llama", "gpt2", "gemma3", "phi3_longrope_cross"}) {
    const Checkpoint checkpoint = open_checkpoint(kGolden + name);
    double last_share = 0;
    const auto model = load_model(checkpoint, *backend, {.progress = [&](double share, const std::string&) {
                                                          EXPECT_GE(share, last_share);
                                                          last_share = share;
                                                        }});
    int64_t n_counted = 0, n_stored = 0;
    for (const ComponentSize& c : model->sizes) n_counted += c.n_params;
    for (const TensorInfo& t : checkpoint.weights->tensors()) {
      int64_t n = 1;
      for (const int64_t d : t.shape) n *= d;
      n_stored += n;
    }
    EXPECT_EQ(n_counted, n_stored) << name;
    EXPECT_EQ(last_share, 1.0) << name;
    EXPECT_LT(model->streamed_bytes(), n_stored * 4);
  }
}

}  // namespace
}  // namespace ridge
