// LoRA adapters: a request with one gets what the model with the adapter merged into its weights gives, whoever else is in the batch; and bad adapters are refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>

#include "base/error.h"
#include "base/files.h"
#include "engine/engine.h"
#include "engine/test_devices.h"
#include "engine/tiny_model.h"
#include "files/safetensors_writer.h"
#include "files/temporary_folder.h"

namespace ridge {
namespace {

using Matrix = std::vector<float>;           // row after row

// An adapter of random numbers for some modules of the tiny model, as PEFT writes it.
struct RandomAdapter {
  struct Part { std::string module; int n_outputs, n_inputs; Matrix a, b; };
  std::vector<Part> parts;
  int rank;
  float alpha;
  bool rslora;

  RandomAdapter(int rank, float alpha, uint32_t seed, bool rslora = false) : rank(rank), alpha(alpha), rslora(rslora) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.3f);
    for (const int layer : {0, 2})
      for (const auto& [name, n_out, n_in] : {std::tuple{"self_attn.q_proj", 64, 64}, {"self_attn.v_proj", 32, 64}, {"mlp.down_proj", 64, 96}, {"mlp.gate_proj", 96, 64}}) {
        Part part{"model.layers." + std::to_string(layer) + "." + name, n_out, n_in, Matrix(size_t(rank * n_in)), Matrix(size_t(n_out * rank))};
        for (float& x : part.a) x = normal(random);
        for (float& x : part.b) x = normal(random);
        parts.push_back(std::move(part));
      }
  }
  float scale() const { return alpha / (rslora ? std::sqrt(float(rank)) : float(rank)); }

  void write(const std::string& folder, Json changes = Json::object()) const {
    std::filesystem::create_directories(folder);
    Json config = {{"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", alpha}, {"use_rslora", rslora}, {"bias", "none"}, {"target_modules", {"q_proj"}}};
    config.update(changes);
    write_file(folder + "/adapter_config.json", config.dump());
    std::vector<TensorSource> tensors;
    for (const Part& p : parts) {
      tensors.push_back(f32_source("base_model.model." + p.module + ".lora_A.weight", {rank, p.n_inputs}, p.a));
      tensors.push_back(f32_source("base_model.model." + p.module + ".lora_B.weight", {p.n_outputs, rank}, p.b));
    }
    write_safetensors(folder + "/adapter_model.safetensors", tensors);
  }

  // The base model with what the adapter says added to its weights.
  Checkpoint merged(const Checkpoint& base, const std::string& folder) const {
    std::filesystem::create_directories(folder);
    write_file(folder + "/config.json", base.config.dump());
    std::vector<TensorSource> tensors;
    for (const TensorInfo& info : base.weights->tensors()) {
      const StoredWeight w = base.weights->get(info.name);
      Matrix values(size_t(w.rows * w.cols));
      for (int64_t r = 0; r < w.rows; ++r) decode_stored_row(values.data() + r * w.cols, w, r);
      for (const Part& p : parts)
        if (info.name == p.module + ".weight")
          for (int o = 0; o < p.n_outputs; ++o)
            for (int i = 0; i < p.n_inputs; ++i) {
              double sum = 0;
              for (int k = 0; k < rank; ++k) sum += double(p.b[size_t(o * rank + k)]) * p.a[size_t(k * p.n_inputs + i)];
              values[size_t(o * p.n_inputs + i)] += float(scale() * sum);
            }
      tensors.push_back(f32_source(info.name, info.shape, std::move(values)));
    }
    write_safetensors(folder + "/model.safetensors", tensors);
    return open_checkpoint(folder);
  }
};

EngineOptions options_of(const std::string& device, const std::string& isa = "") {
  EngineOptions options{.device = device, .isa = isa};
  options.activations = FormatId::f32;
  options.max_context = 128;
  return options;
}

Request request_of(const std::string& adapter, int shape) {
  Request request{.prompt = {3 + shape, 20, 21, 5}};
  for (int i = 0; i < shape * 9; ++i) request.prompt.push_back(6 + i * 7 % 80);
  request.params.temperature = shape % 2 ? 0.8f : 0.0f;
  request.params.seed = shape;
  request.params.ignore_eos = true;
  request.params.max_tokens = 12;
  request.params.n_logprobs = 0;
  request.adapter = adapter;
  return request;
}

std::map<uint64_t, std::vector<Sampled>> run_all(Engine& engine) {
  std::map<uint64_t, std::vector<Sampled>> answers;
  while (!engine.idle())
    for (Event& event : engine.step()) {
      EXPECT_EQ(event.error, "");
      for (Sampled& s : event.sampled) answers[event.id].push_back(std::move(s));
    }
  return answers;
}

class Adapters : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(Adapters, GiveWhatMergedWeightsGiveAndTheSameBitsInAnyBatch) {
  const TinyModel base;
  const TemporaryFolder folder;
  const EngineOptions options = options_of(GetParam().first, GetParam().second);
  const std::vector<RandomAdapter> adapters = {{4, 4.0f, 1}, {7, 3.0f, 2, true}, {1, 0.5f, 3}};
  const std::vector<std::string> names = {"", "one", "two", "three"};

  Engine engine(base.checkpoint(), options);
  std::vector<std::vector<std::vector<Sampled>>> alone(names.size());
  for (size_t n = 0; n < names.size(); ++n) {
    Checkpoint checkpoint;
    std::unique_ptr<Engine> merged;
    if (n > 0) {
      adapters[n - 1].write(folder.file(names[n]));
      engine.load_adapter(names[n], folder.file(names[n]));
      checkpoint = adapters[n - 1].merged(base.checkpoint(), folder.file("merged_" + names[n]));
      merged = std::make_unique<Engine>(checkpoint, options);
    } else {
      merged = std::make_unique<Engine>(base.checkpoint(), options);
    }
    for (int shape = 0; shape < 4; ++shape) {
      const uint64_t id = engine.submit(request_of(names[n], shape)), expected_id = merged->submit(request_of("", shape));
      alone[n].push_back(run_all(engine)[id]);
      const std::vector<Sampled> expected = run_all(*merged)[expected_id];
      ASSERT_EQ(alone[n][shape].size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(alone[n][shape][i].token, expected[i].token) << names[n] << " shape " << shape << " token " << i;
        EXPECT_NEAR(alone[n][shape][i].logprob, expected[i].logprob, 2e-3);
      }
    }
    if (n > 0) EXPECT_NE(alone[n][0].front().logprob, alone[0][0].front().logprob) << "the adapter changes nothing";
  }
  // All at once, in small chunks, with some preempted.
  EngineOptions mixed = options;
  mixed.max_batch_tokens = 13, mixed.page_size = 16;
  Engine together(base.checkpoint(), mixed);
  for (size_t n = 1; n < names.size(); ++n) together.load_adapter(names[n], folder.file(names[n]));
  std::map<uint64_t, const std::vector<Sampled>*> expected;
  for (int shape = 0; shape < 4; ++shape)
    for (size_t n = 0; n < names.size(); ++n) expected[together.submit(request_of(names[n], shape))] = &alone[n][shape];
  for (int i = 0; i < 10; ++i) together.step(), together.preempt(uint64_t(1 + i));
  EXPECT_EQ(together.adapters().size(), 3u);
  together.unload_adapter("two");            // those that run with it go on
  std::map<uint64_t, std::vector<Sampled>> rest = run_all(together);
  int n_compared = 0;
  for (const auto& [id, answer] : rest) {
    const std::vector<Sampled>& whole = *expected[id];
    ASSERT_LE(answer.size(), whole.size());
    for (size_t i = 0; i < answer.size(); ++i, ++n_compared) {
      const Sampled& e = whole[whole.size() - answer.size() + i];
      ASSERT_EQ(answer[i].token, e.token) << id;
      EXPECT_EQ(answer[i].logprob, e.logprob) << id;
    }
  }
  EXPECT_GT(n_compared, 100);
  EXPECT_THROW(together.submit(request_of("two", 0)), Error);
}

INSTANTIATE_TEST_SUITE_P(Devices, Adapters, testing::ValuesIn(test_devices()), [](const auto& info) { return info.param.first + (info.param.second.empty() ? "" : "_" + info.param.second); });

TEST(AdaptersOfFusedTensors, AreCutAsTheTensorIs) {
  // Phi-3 fuses q, k, v and gate, up by stacking: the adapter of the fused module equals the merged weights.
  const TinyModel base;
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.file("phi"));
  Json config = base.checkpoint().config;
  config["model_type"] = "phi3", config["architectures"] = {"Phi3ForCausalLM"}, config["pad_token_id"] = 0;
  write_file(folder.file("phi/config.json"), config.dump());
  std::vector<TensorSource> tensors;
  const auto rows_of = [&](std::vector<std::string> names) {
    Matrix all;
    for (const std::string& name : names) {
      const StoredWeight w = base.checkpoint().weights->get(name);
      for (int64_t r = 0; r < w.rows; ++r) {
        all.resize(all.size() + size_t(w.cols));
        decode_stored_row(all.data() + all.size() - w.cols, w, r);
      }
    }
    return all;
  };
  for (const TensorInfo& info : base.checkpoint().weights->tensors())
    if (info.name.find("q_proj") == std::string::npos && info.name.find("k_proj") == std::string::npos && info.name.find("v_proj") == std::string::npos &&
        info.name.find("gate_proj") == std::string::npos && info.name.find("up_proj") == std::string::npos)
      tensors.push_back(f32_source(info.name, info.shape, rows_of({info.name})));
  for (int i = 0; i < 3; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    tensors.push_back(f32_source(layer + "self_attn.qkv_proj.weight", {128, 64}, rows_of({layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight", layer + "self_attn.v_proj.weight"})));
    tensors.push_back(f32_source(layer + "mlp.gate_up_proj.weight", {192, 64}, rows_of({layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight"})));
  }
  write_safetensors(folder.file("phi/model.safetensors"), tensors);
  const Checkpoint phi = open_checkpoint(folder.file("phi"));

  RandomAdapter adapter(3, 2.0f, 5);
  adapter.parts.clear();
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 0.3f);
  for (const auto& [name, n_out] : {std::pair{"self_attn.qkv_proj", 128}, {"mlp.gate_up_proj", 192}}) {
    RandomAdapter::Part part{std::string("model.layers.1.") + name, n_out, 64, Matrix(3 * 64), Matrix(size_t(n_out * 3))};
    for (float& x : part.a) x = normal(random);
    for (float& x : part.b) x = normal(random);
    adapter.parts.push_back(std::move(part));
  }
  adapter.write(folder.file("adapter"));
  const Checkpoint merged_phi = adapter.merged(phi, folder.file("merged"));
  Engine engine(phi, options_of("ref")), merged(merged_phi, options_of("ref"));
  engine.load_adapter("a", folder.file("adapter"));
  const uint64_t id = engine.submit(request_of("a", 2)), expected_id = merged.submit(request_of("", 2));
  const std::vector<Sampled> got = run_all(engine)[id], expected = run_all(merged)[expected_id];
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].token, expected[i].token);
    EXPECT_NEAR(got[i].logprob, expected[i].logprob, 2e-3);
  }
}

TEST(AdaptersThatDoNotFit, AreRefusedByNameAndLeaveTheEngineAsItWas) {
  const TinyModel base;
  const TemporaryFolder folder;
  Engine engine(base.checkpoint(), options_of("ref"));
  const auto refused = [&](const std::string& what, const std::function<void(RandomAdapter&)>& change, const Json& config = Json::object()) {
    RandomAdapter adapter(4, 4.0f, 1);
    change(adapter);
    adapter.write(folder.file("bad"), config);
    try {
      engine.load_adapter("bad", folder.file("bad"));
      ADD_FAILURE() << what << " was accepted";
      engine.unload_adapter("bad");
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
    }
  };
  const auto same = [](RandomAdapter&) {};
  refused("lm_head", [](auto& a) { a.parts = {{"lm_head", 96, 64, Matrix(4 * 64), Matrix(96 * 4)}}; });
  refused("model.layers.7.self_attn.q_proj", [](auto& a) { a.parts[0].module = "model.layers.7.self_attn.q_proj"; });
  refused("inputs", [](auto& a) { a.parts[0].n_inputs = 32, a.parts[0].a.resize(4 * 32); });
  refused("rank", [](auto& a) { a.rank = 600, a.parts.resize(1), a.parts[0].a.resize(600 * 64), a.parts[0].b.resize(64 * 600); });
  refused("no tensors", [](auto& a) { a.parts.clear(); });
  refused("use_dora", same, {{"use_dora", true}});
  refused("peft_type", same, {{"peft_type", "IA3"}});
  refused("modules_to_save", same, {{"modules_to_save", {"lm_head"}}});
  refused("alpha_pattern", same, {{"alpha_pattern", {{"q_proj", 8}}}});
  refused("lora_alpha", same, {{"lora_alpha", "many"}});
  EXPECT_THROW(engine.load_adapter("none", folder.file("nowhere")), Error);
  EXPECT_THROW(engine.unload_adapter("bad"), Error);
  EXPECT_THROW(engine.submit(request_of("bad", 0)), Error);
  EXPECT_TRUE(engine.adapters().empty());
  RandomAdapter(4, 4.0f, 1).write(folder.file("good"));
  engine.load_adapter("good", folder.file("good"));
  EXPECT_THROW(engine.load_adapter("good", folder.file("good")), Error);
  ASSERT_EQ(engine.adapters().size(), 1u);
  EXPECT_EQ(engine.adapters()[0].rank, 4);
  EXPECT_EQ(engine.adapters()[0].n_parts, 8u);
}

}  // namespace
}  // namespace ridge
