// What an engine is made with: the device, the arithmetic and the memory it may use.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "formats/format.h"

namespace ridge {

struct EngineOptions {
  std::string device = "auto";               // auto, cuda, cpu, ref
  std::string isa;                           // cpu: scalar, neon, avx2, avx512; empty: the best this machine has
  int n_threads = 0;                         // 0: one per core
  FormatId activations = FormatId::unknown;  // i8, i16, f32; unknown: i16 for small models, else i8
  FormatId kv_format = FormatId::unknown;    // unknown: f32 when activations are f32, else f16
  int max_context = 0;                       // --ctx-size; 0: the model's, cut to what fits
  int max_seqs = 16;
  int max_batch_tokens = 0;                  // token budget of a step; 0: what the device does well at once, within its memory (device.h)
  int max_logits = 0;                        // rows of logits a step may ask for; 0: one per sequence. Requests that want all logits go faster with more
  int page_size = 64;
  int64_t kv_bytes = 0;                      // 0: enough for max_context once, or a quarter of the free memory, whichever is less but at least one sequence
  bool rope_dynamic_exact = false;
  bool index_with_hindsight = false;         // for comparisons: see ModelOptions
  // Serving.
  std::string policy = "fcfs";               // who of those that wait is taken first: fcfs, priority, lpm (longest cached prefix)
  int target_ttft_ms = 0, target_tpot_ms = 0;    // the scheduler shapes its steps to keep these; 0: none
  double max_slowdown = 0;                   // of running decodes by prefill in the same step: 0.8 lets a step take 1.8 times as long; 0: no limit
  bool prefix_cache = false;                 // keep what finished sequences computed, for those that begin alike
  int64_t swap_bytes = 0;                    // of host memory for preempted sequences; 0: they are always computed again
  std::optional<bool> run_ahead;             // submit a step before the one before it is done, where that is sure to be wanted; not set: where the device works alone (cuda)
  bool profile = false;                      // time every op
  bool blocking_launches = false;            // cuda: every op is waited for, so that a fault names its op and layer
  std::function<void(double share, const std::string& what)> progress;
};

}  // namespace ridge
