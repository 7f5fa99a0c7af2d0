// A forward pass that stops between blocks and goes on later. The workspace is its alone from the first block to the last.
#pragma once
#include "model/model.h"

namespace ridge {

struct PartialPass {
  Stream stream;
  size_t n_done = 0;                         // blocks
};

// Runs the next block of the step, the embedding before the first. The step asks for no logits: when all blocks are done, everything is in KV.
void forward_block(const Model& model, Backend& backend, const Step& step, Workspace& workspace, const std::vector<KvRef>& kv, PartialPass& pass);

}  // namespace ridge
