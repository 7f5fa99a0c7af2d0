// Short convolutions along a sequence. A Conv is the weights and the KV handle of one: its inputs are an ordinary windowed group of pages, so that stepping back,
// forking and resuming need nothing of their own. ShortConvMixer is LFM2's layer: out(c * conv(b * x)) with b, c, x = in(input).
#pragma once
#include "model/construction.h"

namespace ridge {

struct Conv {
  Tensor weight, bias;                       // [n_taps, channels]; bias may be empty
  int kv = 0;
  ShortConv op(const Pass& pass, Tensor out, Tensor x, bool silu) const {
    return {.out = out, .x = x, .weight = weight, .bias = bias, .silu = silu, .kv = pass.kv(kv)};
  }
};

// `names`: tensors [channels, 1, n_taps] whose channels follow each other, wherever they are cut.
Conv make_conv(Construction& c, const std::vector<std::string>& names, int64_t channels, int n_taps, const std::string& bias = "");

class ShortConvMixer : public Module {
 public:
  struct Parts {
    const Weight *in, *out;
    Tensor in_bias, out_bias;
    Conv conv;
  };
  explicit ShortConvMixer(const Parts& parts) : p_(parts) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;

 private:
  Parts p_;
};

std::unique_ptr<Module> make_short_conv(Construction& c, const std::string& prefix, int64_t d_model, int n_taps, bool bias);

}  // namespace ridge
