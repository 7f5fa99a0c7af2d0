// The usual layer: a mixer, then a feed-forward, each added to the residual stream. Norms may stand before a part (Llama), after it (OLMo 2), or both (Gemma 2):
//   x += residual_scale * after(part(before(x)))
// There may be more parts than two, and the stream may be scaled when all are done (Gemma 4).
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
  explicit SequentialBlock(std::vector<Part> parts, float residual_scale = 1.0f, float output_scale = 1.0f)
      : parts_(std::move(parts)), residual_scale_(residual_scale), output_scale_(output_scale) {}
  void forward(Pass& pass, Stream& stream) const override;

 private:
  void run_part(const Part& part, Pass& pass, Stream& stream) const;
  std::vector<Part> parts_;
  float residual_scale_, output_scale_;
};

// out = norm(x + pending); x is updated.
AddNorm add_norm(Tensor out, const Stream& stream, const Norm& norm);

}  // namespace ridge
