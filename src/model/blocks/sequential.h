// The usual layer: a mixer, then a feed-forward, each added to the residual stream. Norms may stand before a part (Llama), after it (OLMo 2), or both (Gemma 2):
//   x += residual_scale * after(part(before(x)))
#pragma once
#include "model/model.h"

namespace ridge {

struct Norm {
  Tensor weight, bias;                       // an empty weight: there is no norm here
  float eps = 0, offset = 0;
  NormKind kind = NormKind::rms;
  explicit operator bool() const { return static_cast<bool>(weight); }
};

class SequentialBlock : public Block {
 public:
  struct Part {
    Norm before, after;
    std::unique_ptr<Module> module;
  };
  SequentialBlock(Part mixer, Part ffn, float residual_scale) : mixer_(std::move(mixer)), ffn_(std::move(ffn)), residual_scale_(residual_scale) {}
  void forward(Pass& pass, Stream& stream) const override;

 private:
  void run_part(const Part& part, Pass& pass, Stream& stream) const;
  Part mixer_, ffn_;
  float residual_scale_;
};

// out = norm(x + pending); x is updated.
AddNorm add_norm(Tensor out, const Stream& stream, const Norm& norm);

}  // namespace ridge
