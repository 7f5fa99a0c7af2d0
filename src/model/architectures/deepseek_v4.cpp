// DeepSeek-V4: hyper-connections between the layers; attention through a window and over compressed entries, in turn one for every few positions with an index
// that selects them and one for very many; mixtures whose first layers look a token's experts up in a table. Sliding layers have a rope of their own.
#include "model/architectures/registry.h"
#include "model/blocks/hyper.h"
#include "model/modules/compressed_attention.h"

namespace ridge {
namespace {

Shape read_v4_shape(const Config& config) {
  Shape s{};
  s.n_vocab = config.integer("vocab_size", 1, 1 << 24);
  s.d_model = config.integer("hidden_size", 1, 1 << 17);
  s.n_layers = config.integer("num_hidden_layers", 1, 2048);
  s.n_heads = config.integer("num_attention_heads", 1, 4096);
  s.n_kv_heads = 1;
  s.head_dim = config.integer_or("head_dim", 512, 2, 1 << 14);
  s.d_ff = config.integer("moe_intermediate_size", 1, 1 << 20);
  s.max_context = config.integer_or("max_position_embeddings", 1048576, 1, 1 << 28);
  s.eps = static_cast<float>(config.number_or("rms_norm_eps", 1e-6, 0, 1));
  return s;
}

struct LayerKind { int every; bool indexed; };

// From layer_types and compress_rates, or from compress_ratios, positions of an entry by layer: 0 is a layer with a window alone, 4 one with an index.
std::vector<LayerKind> read_layer_kinds(const Config& config, int n_layers) {
  const Config rates = config.has("compress_rates") ? config.section("compress_rates") : config;
  const int few = rates.integer_or("compressed_sparse_attention", config.integer_or("compress_rate_csa", 4, 1, 1 << 16), 1, 1 << 16);
  const int many = rates.integer_or("heavily_compressed_attention", config.integer_or("compress_rate_hca", 128, 1, 1 << 16), 1, 1 << 16);
  std::vector<std::string> types;
  if (config.has("layer_types")) {
    types = config.texts("layer_types", static_cast<size_t>(n_layers));
  } else if (config.has("compress_ratios")) {
    const Json& ratios = config.json()["compress_ratios"];
    if (!ratios.is_array() || ratios.size() < static_cast<size_t>(n_layers)) config.refuse("compress_ratios", "every layer needs a number");
    for (size_t i = 0; i < static_cast<size_t>(n_layers); i++)
      types.emplace_back(ratios[i] == 0     ? "sliding_attention"
                         : ratios[i] == 4   ? "compressed_sparse_attention"
                         : ratios[i] == 128 ? "heavily_compressed_attention"
                                            : "");
  } else {
    for (int i = 0; i < n_layers; i++) types.emplace_back(i < 2 || i % 2 == 0 ? "heavily_compressed_attention" : "compressed_sparse_attention");
  }
  std::vector<LayerKind> kinds;
  for (const std::string& type : types) {
    if (type == "sliding_attention") kinds.push_back({0, false});
    else if (type == "compressed_sparse_attention") kinds.push_back({few, true});
    else if (type == "heavily_compressed_attention") kinds.push_back({many, false});
    else config.refuse(config.has("layer_types") ? "layer_types" : "compress_ratios",
                       "only sliding_attention (0), compressed_sparse_attention (4) and heavily_compressed_attention (128) are supported");
  }
  return kinds;
}

std::vector<bool> read_hashed(const Config& config, int n_layers) {
  std::vector<bool> hashed;
  const int n_hashed = config.integer_or("num_hash_layers", 3, 0, 1 << 20);
  if (!config.has("mlp_layer_types"))
    for (int i = 0; i < n_layers; i++) hashed.push_back(i < n_hashed);
  else
    for (const std::string& type : config.texts("mlp_layer_types", static_cast<size_t>(n_layers))) {
      if (type != "hash_moe" && type != "moe") config.refuse("mlp_layer_types", "only hash_moe and moe are supported");
      hashed.push_back(type == "hash_moe");
    }
  return hashed;
}

// The rope of sliding layers ("main") or of those with entries ("compress"); where one section serves both, its scaling is that of the second.
Json read_rope(const Config& config, const char* kind) {
  const Config all = config.section("rope_parameters");
  const bool compress = std::string_view(kind) == "compress";
  Json rope = all.has(kind) ? all.section(kind).json() : compress ? all.json() : Json{{"rope_type", "default"}};
  if (!all.has(kind)) {
    rope["rope_theta"] = compress ? config.number_or("compress_rope_theta", 160000.0, 1e-3, 1e12) : all.number_or("rope_theta", 10000.0, 1e-3, 1e12);
    if (rope.value("rope_type", "default") == "yarn" && !rope.contains("attention_factor")) rope["attention_factor"] = 1.0;
  }
  if (!rope.contains("original_max_position_embeddings")) rope["original_max_position_embeddings"] = config.integer_or("max_position_embeddings", 1048576, 1, 1 << 28);
  rope["partial_rotary_factor"] = 1.0;                                  // of the part that rotates
  return rope;
}

GateKind read_gate(const Config& config) {
  const std::string name = config.text_or("scoring_func", "sqrtsoftplus");
  if (name == "sqrtsoftplus") return GateKind::sqrt_softplus;
  if (name == "sigmoid") return GateKind::sigmoid;
  if (name == "softmax") return GateKind::softmax;
  config.refuse("scoring_func", "known are sqrtsoftplus, sigmoid and softmax");
}

}  // namespace

void build_deepseek_v4(Construction& c) {
  const Config& config = c.config;
  const Shape s = read_v4_shape(config);
  for (const char* key : {"attention_bias", "mlp_bias"}) config.refuse_unless(key, false);
  for (const char* key : {"num_key_value_heads", "n_shared_experts"}) config.refuse_unless(key, 1);
  config.refuse_unless("norm_topk_prob", true);
  const std::vector<LayerKind> kinds = read_layer_kinds(config, s.n_layers);
  const std::vector<bool> hashed = read_hashed(config, s.n_layers);
  const double given = config.integer_or("qk_rope_head_dim", s.head_dim / 8, 2, s.head_dim) / static_cast<double>(s.head_dim);
  const int n_rot = static_cast<int>(s.head_dim * config.number_or("partial_rotary_factor", given, 0, 1));
  CompressedAttentionOptions attention{.head_dim = s.head_dim, .n_rot = n_rot, .q_rank = config.integer("q_lora_rank", 1, 1 << 17),
                                       .o_groups = config.integer_or("o_groups", 8, 1, 4096), .o_rank = config.integer_or("o_lora_rank", 1024, 1, 1 << 17),
                                       .window = config.integer_or("sliding_window", 128, 1, 1 << 28), .index_heads = config.integer_or("index_n_heads", 64, 1, 4096),
                                       .index_dim = config.integer_or("index_head_dim", 128, n_rot, 1 << 14),
                                       .index_top_k = config.integer_or("index_topk", 512, 1, 1 << 20)};
  if (s.n_heads % attention.o_groups != 0) config.refuse("o_groups", "it must divide num_attention_heads");
  MoeOptions mixture{.n_experts = config.integer("n_routed_experts", 1, 1 << 16), .top_k = config.integer("num_experts_per_tok", 1, 1 << 16), .d_ff = s.d_ff,
                     .act = read_activation(config, "hidden_act", "silu"), .limit = static_cast<float>(config.number_or("swiglu_limit", 10.0, 1e-6, 1e9)),
                     .gate = read_gate(config), .renormalize = true, .norm_eps = 1e-20f, .scale = static_cast<float>(config.number_or("routed_scaling_factor", 1.5, 0, 1e6)),
                     .names = {"w1", "w3", "w2"}, .shared = "shared_experts.", .d_shared = s.d_ff, .shared_names = {"w1", "w3", "w2"}};
  const HyperOptions hyper{.n = config.integer_or("hc_mult", 4, 1, 16), .iterations = config.integer_or("hc_sinkhorn_iters", 20, 1, 10000),
                           .eps = static_cast<float>(config.number_or("hc_eps", 1e-6, 0, 1)), .norm_eps = s.eps};
  const auto factors = [&](const std::string& prefix, int n, int n_scales) {
    return HyperFactors{c.weights.matrix("hyper", prefix + "fn", n, int64_t{hyper.n} * s.d_model), c.weights.vector("hyper", prefix + "scale", n_scales),
                        c.weights.vector("hyper", prefix + "base", n)};
  };

  // Published checkpoints have no "model." before their names.
  const std::string root = c.weights.has("model.embed_tokens.weight") ? "model." : "", embedding = root.empty() ? "embed.weight" : "model.embed_tokens.weight";
  c.embed(embedding, s);
  Shape rotated_part = s;
  rotated_part.head_dim = n_rot;
  const int main = c.add_rope(read_rope(config, "main"), rotated_part), compress = c.add_rope(read_rope(config, "compress"), rotated_part);
  const int n_factors = (2 + hyper.n) * hyper.n;
  for (const int buffer : {HyperSpread::kStreams, HyperSpread::kNormed}) c.scratch(buffer, int64_t{hyper.n} * s.d_model);
  c.scratch(HyperSpread::kFactors, n_factors);
  c.model.blocks.push_back(std::make_unique<HyperSpread>(c.model, hyper.n));
  for (int i = 0; i < s.n_layers; i++) {
    const std::string p = layer_prefix(i, root + "layers.");
    const auto at = static_cast<size_t>(i);
    attention.rope = kinds[at].every > 0 ? compress : main;
    attention.every = kinds[at].every;
    attention.indexed = kinds[at].indexed;
    mixture.hash = hashed[at] ? "gate.tid2eid" : "";
    mixture.choice_bias = hashed[at] ? "" : "gate.bias";
    std::array<HyperBlock::Part, 2> parts{
        HyperBlock::Part{factors(p + "hc_attn_", n_factors, 3), c.rms_norm(p + "attn_norm", s), make_compressed_attention(c, p + "attn.", s, attention)},
        HyperBlock::Part{factors(p + "hc_ffn_", n_factors, 3), c.rms_norm(p + "ffn_norm", s), c.moe(p + "ffn.", s, mixture)}};
    c.model.blocks.push_back(std::make_unique<HyperBlock>(std::move(parts), hyper));
  }
  c.model.blocks.push_back(std::make_unique<HyperHead>(factors(root.empty() ? "hc_head_" : "model.hc_head.hc_", hyper.n, 1), hyper));
  c.weights.refuse_unused(root + "layers.", s.n_layers);
  c.finish(c.rms_norm(root + "norm", s), embedding, "head.weight", s, false);
}

}  // namespace ridge
