// A layer whose residual stream is what the norm returned, not what went into it (MiniMax-01):
//   n = norm(x), x = stream_scale * n + part_scale * part(n)        for each part
#pragma once
#include "model/blocks/sequential.h"

namespace ridge {

class RenormedBlock : public Block {
 public:
  struct Part {
    Norm norm;
    std::unique_ptr<Module> module;
    float stream_scale = 1.0f, part_scale = 1.0f;
  };
  RenormedBlock(Part mixer, Part ffn) : parts_{std::move(mixer), std::move(ffn)} {}
  void forward(Pass& pass, Stream& stream) const override;

 private:
  std::array<Part, 2> parts_;
};

}  // namespace ridge
