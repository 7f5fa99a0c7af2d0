// LongCat's layer: two attentions and two dense feed-forwards in turn, and one mixture beside them, which reads what the first feed-forward reads and is added at
// the end of the layer:
//   x += attention_0(norm x);  m = mixture(h), x += ffn_0(h) with h = norm x;  x += attention_1(norm x);  x += ffn_1(norm x) + m
#pragma once
#include <array>

#include "model/blocks/sequential.h"

namespace ridge {

class ShortcutBlock : public Block {
 public:
  struct Half {
    Norm attention_norm, ffn_norm;
    std::unique_ptr<Module> attention, ffn;
  };
  ShortcutBlock(std::array<Half, 2> halves, std::unique_ptr<Module> mixture) : halves_(std::move(halves)), mixture_(std::move(mixture)) {}
  void forward(Pass& pass, Stream& stream) const override;

  static constexpr int kMixture = 15;        // scratch buffer of what the mixture returned

 private:
  std::array<Half, 2> halves_;
  std::unique_ptr<Module> mixture_;
};

}  // namespace ridge
