// Runs a chunk of a prompt a few blocks at a time, between the steps of those that decode (Plan::slice). It has a step and a workspace of its own, so that the
// chunk's residual stream waits there.
#pragma once
#include "engine/scheduler.h"
#include "model/partial_pass.h"

namespace ridge {

class SlicedPrefill {
 public:
  static constexpr int kTokens = 64;         // most of a chunk
  SlicedPrefill(const Model& model, Backend& backend, const KvCache& kv, int max_context);

  // Runs blocks until the slice's time is up, but one at least; another serial number than last time begins anew.
  struct Progress { bool is_through; int n_blocks; double seconds; };
  Progress run(const Slice& slice, const RopeRow& rope_row);

 private:
  const Model& model_;
  Backend& backend_;
  const KvCache& kv_;
  Step step_;
  Workspace workspace_;
  PartialPass pass_;
  uint64_t serial_ = 0;
};

}  // namespace ridge
