// Rounds the weights of a checkpoint to a block format and writes them as GGUF. Rounding is to the nearest number with the block scale of least squared error
// (the formats' own encoders); which format a tensor gets is the plan:
//
//   matrices                        the chosen format
//   embedding and output head       another one (q8_0 where the chosen format has four bits): they are looked up or read for every token's logits
//   vectors (norms, biases)         as they are; in the file as f32
//   names that match `keep`         as they are
//   rows that blocks do not divide  q8_0, or as they are
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "files/checkpoint.h"
#include "quantize/report.h"

namespace ridge {

struct QuantizeOptions {
  FormatId format = FormatId::q8_0;
  std::optional<FormatId> embedding;                   // none: by the rule above
  std::string keep;                                    // a regular expression (ECMAScript) searched in Hugging Face's tensor names; empty: none
  std::function<void(double share)> progress;
};

// The format of one tensor under the plan. `shape`: outermost first.
FormatId planned_format(const QuantizeOptions& options, const std::string& name, const std::vector<int64_t>& shape, FormatId stored);

// Writes `path`; nothing partial is left after an error. Throws Error for a format nothing can write, a bad `keep`, or a model that is no candidate.
QuantizeReport quantize_to_gguf(const Checkpoint& checkpoint, const std::string& path, const QuantizeOptions& options);

}  // namespace ridge
