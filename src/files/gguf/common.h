// What the tables of architectures share.
#pragma once
#include "files/gguf/architecture.h"

namespace ridge {

inline std::vector<GgufName> operator+(std::vector<GgufName> a, const std::vector<GgufName>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline std::vector<GgufKey> operator+(std::vector<GgufKey> a, const std::vector<GgufKey>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline constexpr const char* kSilu = R"({"hidden_act": "silu"})";              // all that many a loader knows by heart

// Names and keys that hold for every architecture that does not say otherwise.
const std::vector<GgufName>& common_names();
const std::vector<GgufKey>& common_keys();

// Rows of q and k lie interleaved in the file: llama.cpp rotates neighbours there.
inline std::vector<GgufName> interleaved_heads() {
  return {{"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", Change::q_heads}, {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", Change::k_heads}};
}

// The matrices of experts that are stored one by one, under these names.
std::vector<GgufName> experts_at(const std::string& gate, const std::string& up, const std::string& down);

// layer_types from a list of KV heads in which layers without attention have none, and back.
Json layer_types_by_kv_heads(const GgufKeys& keys, const Json& config, const char* attention, const char* other);
Json kv_heads_by_layer_types(const Json& config, const std::vector<bool>& is_attention);

// Every p-th layer full, the others sliding, for a period p; p = 0: all sliding.
Json periodic_layers(int64_t n_layers, int64_t period, const char* others = "sliding_attention");
// The period of such a list, when it has one.
std::optional<int64_t> period_of(const Json& layer_types, const char* others = "sliding_attention");

}  // namespace ridge
