// Where numbers went wrong: run when a step's logits are not finite, never before. A NaN stays in the residual stream, so the first layer with one is found by
// halving, and then the file's tensors of that layer are read for the cause.
#pragma once
#include <string>

#include "model/model.h"

namespace ridge {

// A sentence that names the layer, and the tensor where it is a tensor. Runs the step again, block by block: what it writes to KV is what is there already.
std::string diagnose_step(const Model& model, const WeightFile& file, Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv);

}  // namespace ridge
