// Hyper-connections (DeepSeek-V4): the residual stream is n streams side by side, a row [n * d_model]. A part reads a weighted sum of them, its result goes back to
// each with a factor, and the streams mix; all factors depend on the token (HyperEnter, HyperLeave). The first block makes n streams of the embedding, the last
// one makes one of them again.
#pragma once
#include <array>

#include "model/blocks/sequential.h"

namespace ridge {

// How the factors come about: weights = fn * norm(streams), scale and base as HyperEnter has them.
struct HyperFactors {
  const Weight* fn;
  Tensor scale, base;
};

struct HyperOptions {
  int n, iterations;
  float eps, norm_eps;                       // eps of the factors; of the norm on the streams
};

class HyperSpread : public Block {
 public:
  HyperSpread(const Model& model, int n) : model_(model), n_(n) {}
  void forward(Pass& pass, Stream& stream) const override;

  static constexpr int kStreams = 15, kFactors = 13, kNormed = 0;       // scratch buffers: n * d_model, (2 + n) n, n * d_model (before a part begins)

 private:
  const Model& model_;
  int n_;
};

class HyperBlock : public Block {
 public:
  struct Part {
    HyperFactors factors;
    Norm norm;
    std::unique_ptr<Module> module;
  };
  HyperBlock(std::array<Part, 2> parts, const HyperOptions& options) : parts_(std::move(parts)), o_(options) {}
  void forward(Pass& pass, Stream& stream) const override;

 private:
  std::array<Part, 2> parts_;
  HyperOptions o_;
};

class HyperHead : public Block {
 public:
  HyperHead(const HyperFactors& factors, const HyperOptions& options) : factors_(factors), o_(options) {}
  void forward(Pass& pass, Stream& stream) const override;

 private:
  HyperFactors factors_;
  HyperOptions o_;
};

}  // namespace ridge
