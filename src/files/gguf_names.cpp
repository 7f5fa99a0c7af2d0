#include "files/gguf_names.h"

#include <algorithm>
#include <array>
#include <optional>

namespace ridge {
namespace {

// What nearly all decoders share; a family lists what it has instead, which is found first.
const std::vector<GgufName>& common_names() {
  static const std::vector<GgufName> names = {
      {"token_embd", "model.embed_tokens"},
      {"output_norm", "model.norm"},
      {"output", "lm_head"},
      {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
      {"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
      {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
      {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
      {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
      {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"},
      {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"},
      {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
      {"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
      {"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
      {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
  };
  return names;
}

// Gemma 2 and 3 have four norms a layer, OLMo 2 and 3 only the two after their parts.
const std::vector<GgufName> kSandwichNorms = {
    {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"},
    {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};

const std::vector<GgufArchitecture>& architectures() {
  static const std::vector<GgufArchitecture> all = {
      {"llama", "llama", "LlamaForCausalLM", {}, true, false},
      {"llama", "mistral", "MistralForCausalLM", {}, true, false},
      {"qwen2", "qwen2", "Qwen2ForCausalLM", {}, false, false},
      {"qwen3", "qwen3", "Qwen3ForCausalLM", {}, false, false},
      {"phi3", "phi3", "Phi3ForCausalLM", {{"blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"}, {"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"}}, false, false},
      {"gpt2", "gpt2", "GPT2LMHeadModel",
       {{"token_embd", "transformer.wte"},
        {"position_embd", "transformer.wpe"},
        {"output_norm", "transformer.ln_f"},
        {"blk.{}.attn_norm", "transformer.h.{}.ln_1"},
        {"blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn"},
        {"blk.{}.attn_output", "transformer.h.{}.attn.c_proj"},
        {"blk.{}.ffn_norm", "transformer.h.{}.ln_2"},
        {"blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc"},
        {"blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj"}},
       false, false},
      {"starcoder2", "starcoder2", "Starcoder2ForCausalLM", {{"blk.{}.ffn_up", "model.layers.{}.mlp.c_fc"}, {"blk.{}.ffn_down", "model.layers.{}.mlp.c_proj"}}, false, false},
      {"olmo2", "olmo2", "Olmo2ForCausalLM", kSandwichNorms, false, false},
      {"olmo2", "olmo3", "Olmo3ForCausalLM", kSandwichNorms, false, false},
      {"smollm3", "smollm3", "SmolLM3ForCausalLM", {}, true, false},
      {"granite", "granite", "GraniteForCausalLM", {}, true, false},
      {"gemma", "gemma", "GemmaForCausalLM", {}, false, true},
      {"gemma2", "gemma2", "Gemma2ForCausalLM", kSandwichNorms, false, true},
      {"gemma3", "gemma3_text", "Gemma3ForCausalLM", kSandwichNorms, false, true},
  };
  return all;
}

// `name` as an instance of a pattern with at most one "{}": the digits that stand there, empty for a pattern without.
std::optional<std::string_view> match(std::string_view pattern, std::string_view name) {
  const size_t hole = pattern.find("{}");
  if (hole == std::string_view::npos) return pattern == name ? std::optional(std::string_view{}) : std::nullopt;
  const std::string_view before = pattern.substr(0, hole), after = pattern.substr(hole + 2);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) return std::nullopt;
  const std::string_view digits = name.substr(before.size(), name.size() - before.size() - after.size());
  const bool is_number = digits.size() <= 9 && std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? std::optional(digits) : std::nullopt;
}

std::string fill(std::string_view pattern, std::string_view digits) {
  std::string name(pattern);
  if (const size_t hole = name.find("{}"); hole != std::string::npos) name.replace(hole, 2, digits);
  return name;
}

constexpr std::array<std::string_view, 4> kSuffixes = {".weight", ".bias", ".scale", ".input_scale"};

std::string translate(const GgufArchitecture& a, std::string_view name, std::string_view GgufName::*from, std::string_view GgufName::*to) {
  for (const std::string_view suffix : kSuffixes) {
    if (!name.ends_with(suffix)) continue;
    const std::string_view stem = name.substr(0, name.size() - suffix.size());
    for (const auto* table : {&a.names, &common_names()})
      for (const GgufName& n : *table)
        if (const auto digits = match(n.*from, stem)) return fill(n.*to, *digits).append(suffix);
  }
  return std::string(name);
}

}  // namespace

const GgufArchitecture* find_gguf_architecture(std::string_view gguf_name) {
  for (const GgufArchitecture& a : architectures())
    if (a.gguf == gguf_name) return &a;
  return nullptr;
}

const GgufArchitecture* gguf_architecture_of(const Json& config) {
  const auto it = config.find("model_type");
  if (it == config.end() || !it->is_string()) return nullptr;
  for (const GgufArchitecture& a : architectures())
    if (a.model_type == it->get_ref<const std::string&>()) return &a;
  return nullptr;
}

std::string gguf_to_hf_name(const GgufArchitecture& a, std::string_view name) { return translate(a, name, &GgufName::gguf, &GgufName::hf); }
std::string hf_to_gguf_name(const GgufArchitecture& a, std::string_view name) { return translate(a, name, &GgufName::hf, &GgufName::gguf); }

bool has_interleaved_heads(const GgufArchitecture& a, std::string_view hf_name) {
  if (!a.interleaved_heads || !hf_name.starts_with("model.layers.")) return false;
  return hf_name.ends_with(".q_proj.weight") || hf_name.ends_with(".q_proj.bias") || hf_name.ends_with(".k_proj.weight") || hf_name.ends_with(".k_proj.bias");
}

bool has_shifted_norm(const GgufArchitecture& a, std::string_view hf_name) {
  return a.norms_plus_one && hf_name.starts_with("model.") && (hf_name.ends_with("norm.weight"));
}

}  // namespace ridge
