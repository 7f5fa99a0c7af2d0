// Drives forward() for one sequence without an engine: KV memory with pages in a shuffled order, and a Step made by hand.
#pragma once
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace ridge::test {

class OneSequence {
 public:
  OneSequence(const Model& model, Backend& backend, int max_tokens, int page_size = 16);

  // Computes positions [n_computed, n_computed + tokens.size()) with the angles of `rope_class`; returns logits of those rows, or of every nth from the first on (0: of none),
  // [n][n_vocab].
  std::vector<float> run(std::span<const int32_t> tokens, int rope_class, int every = 1);
  void forget() { n_computed_ = 0; }
  int n_computed() const { return n_computed_; }

 private:
  const Model& model_;
  Backend& backend_;
  int page_size_, n_pages_, n_computed_ = 0;
  Workspace workspace_;
  std::vector<KvRef> kv_;                    // a layer's planes: page-major, in memory of its own
  std::vector<int32_t> table_;               // one order of pages for all layers
  Step step_;
};

}  // namespace ridge::test
