// What a decoded token costs in bytes, from a Model's sizes and KV specs alone: the source of `ridge inspect` and of the calculators.
//   weights   read once per step, shared by the batch; of a mixture's experts only those that some token of the batch chose: with choices spread evenly, a share
//             of 1 - (1 - top_k / n)^batch
//   KV        each sequence reads its own: all positions, those of a window, or a recurrent state and the mean length of its tail
#pragma once
#include <string>
#include <vector>

#include "kv/layout.h"
#include "model/model.h"

namespace ridge {

struct ComponentCost {
  std::string component;
  int64_t n_params = 0, n_active = 0;        // n_active: that one token touches
  int64_t bytes = 0;                         // held in memory
  double bytes_per_token = 0;                // moved for one decoded token, a batch's share
};

struct KvGroupCost {
  std::string policy;                        // "full", "window 1024", "recurrent"
  int n_layers = 0;
  int64_t bytes_per_token = 0;               // by which one more token grows it, before anything is given back
  int64_t bytes_held = 0;                    // by a sequence of the context's length
  double bytes_read = 0;                     // for one decoded token at that length
};

struct TokenCost {
  int context = 0, batch = 1;
  std::vector<ComponentCost> components;
  std::vector<KvGroupCost> kv_groups;
  int64_t n_params = 0, n_active = 0, n_streamed = 0;      // n_streamed: active, without tables of which a token reads one row
  int64_t weight_bytes = 0, kv_bytes_per_token = 0;        // held; over all groups
  double weights_per_token = 0, kv_per_token = 0;          // moved
};

TokenCost cost_of_token(const Model& model, int context, int batch);

// How a group decides what it keeps; kv_policies() lists the kinds there are.
std::string policy_of(const KvSpec& spec);
std::vector<std::string> kv_policies();

}  // namespace ridge
