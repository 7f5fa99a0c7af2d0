// A layer whose mixer and feed-forward work side by side on the same stream, from one norm (Cohere, Phi) or from two (GPT-NeoX):
//   x += mixer(norm(x)) + ffn(ffn_norm(x))
#pragma once
#include "model/blocks/sequential.h"

namespace ridge {

class ParallelBlock : public Block {
 public:
  struct Parts {
    Norm norm, ffn_norm;                     // no ffn_norm: the feed-forward reads what the mixer reads
    std::unique_ptr<Module> mixer, ffn;
  };
  explicit ParallelBlock(Parts parts) : p_(std::move(parts)) {}
  void forward(Pass& pass, Stream& stream) const override;

 private:
  Parts p_;
};

}  // namespace ridge
