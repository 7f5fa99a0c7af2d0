// The shapes of well-known models, so that `ridge bench --shape` can measure them without downloading anything: speed depends on the shape and the format alone.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ridge {

struct BenchShape {
  std::string_view name, model_type;                   // "qwen3-0.6b", "qwen3"
  int d_model, d_ff, n_layers, n_heads, n_kv_heads, head_dim, n_vocab;
  bool tied;                                           // the head is the embedding
  double rope_theta;
  int max_context;
  float eps;
  double llama3_factor = 0;                            // of Llama 3.1's and 3.2's rope scaling; 0: none
  int n_experts = 0, top_k = 0, d_expert = 0;          // of a mixture in every layer
};

const BenchShape& find_shape(const std::string& name); // throws Error with the shapes there are
std::vector<std::string> known_shapes();

Json config_of(const BenchShape& shape);               // a config.json

struct ShapeTensor { std::string name; int64_t rows, cols; bool plain = false; };        // rows 0: a vector of ones; plain: bf16 whatever the format (routers)
std::vector<ShapeTensor> tensors_of(const BenchShape& shape);

}  // namespace ridge
