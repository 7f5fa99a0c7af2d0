// A llama (or mistral) of a few thousand random weights, written as a Hugging Face folder into a temporary directory that lives as long as this does.
// The weights are drawn wide enough that greedy continuations do not fall into a loop at once.
#pragma once
#include <filesystem>
#include <limits>
#include <random>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "files/checkpoint.h"
#include "files/safetensors_writer.h"

namespace ridge {

class TinyModel {
 public:
  static constexpr int kVocab = 96;

  // `changes` are merged into config.json; one number of the damaged tensor is NaN.
  explicit TinyModel(const Json& changes = Json::object(), float poison_of_token_7 = 0, const std::string& damaged = "") {
    folder_ = (std::filesystem::temp_directory_path() / ("ridge_tiny_XXXXXX")).string();
    if (!mkdtemp(folder_.data())) fail("no temporary folder: {}", folder_);
    Json config = {{"model_type", "llama"}, {"architectures", {"LlamaForCausalLM"}}, {"vocab_size", kVocab}, {"hidden_size", 64},
                   {"intermediate_size", 96}, {"num_hidden_layers", 3}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                   {"head_dim", 16}, {"max_position_embeddings", 512}, {"rms_norm_eps", 1e-5}, {"rope_theta", 10000.0},
                   {"hidden_act", "silu"}, {"tie_word_embeddings", false}, {"eos_token_id", 2}, {"bos_token_id", 1}};
    config.update(changes);
    write_file(folder_ + "/config.json", config.dump(1));
    const int n_vocab = config["vocab_size"].get<int>();
    std::mt19937 random(42);
    std::vector<TensorSource> tensors;
    const auto add = [&](const std::string& name, std::vector<int64_t> shape, float spread, float center = 0) {
      int64_t n = 1;
      for (const int64_t d : shape) n *= d;
      std::vector<float> values(n);
      std::normal_distribution<float> normal(center, spread);
      for (float& x : values) x = normal(random);
      if (name == "model.embed_tokens.weight" && poison_of_token_7 != 0) values[7 * 64] = poison_of_token_7;
      if (name == damaged) values[5] = std::numeric_limits<float>::quiet_NaN();
      tensors.push_back(f32_source(name, std::move(shape), std::move(values)));
    };
    add("model.embed_tokens.weight", {n_vocab, 64}, 1.0f);
    for (int i = 0; i < config["num_hidden_layers"].get<int>(); ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      add(layer + "input_layernorm.weight", {64}, 0.1f, 1.0f);
      add(layer + "self_attn.q_proj.weight", {64, 64}, 0.3f);
      add(layer + "self_attn.k_proj.weight", {32, 64}, 0.3f);
      add(layer + "self_attn.v_proj.weight", {32, 64}, 0.3f);
      add(layer + "self_attn.o_proj.weight", {64, 64}, 0.3f);
      add(layer + "post_attention_layernorm.weight", {64}, 0.1f, 1.0f);
      add(layer + "mlp.gate_proj.weight", {96, 64}, 0.2f);
      add(layer + "mlp.up_proj.weight", {96, 64}, 0.2f);
      add(layer + "mlp.down_proj.weight", {64, 96}, 0.2f);
    }
    add("model.norm.weight", {64}, 0.1f, 1.0f);
    add("lm_head.weight", {n_vocab, 64}, 0.3f);
    write_safetensors(folder_ + "/model.safetensors", tensors);
    checkpoint_ = open_checkpoint(folder_);
  }
  ~TinyModel() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;

  const Checkpoint& checkpoint() const { return checkpoint_; }

 private:
  std::string folder_;
  Checkpoint checkpoint_;
};

}  // namespace ridge
