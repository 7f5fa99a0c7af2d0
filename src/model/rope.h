// Rotary position embeddings: a variant is one file of rope/ that turns a config section into inverse frequencies. Angles may depend on how many tokens of the
// sequence are known (dynamic NTK, LongRoPE): that dependence is a small integer, the class.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace ridge {

class Rope {
 public:
  virtual ~Rope() = default;
  virtual int n_freqs() const = 0;                              // rotated dimensions / 2
  virtual int class_of(int /*n_known*/) const { return 0; }
  // Inverse frequencies of a class into out[n_freqs]; returns the factor on cos and sin.
  virtual float frequencies(float* out, int rope_class) const = 0;
  virtual std::string description() const = 0;                  // "yarn, factor 4 over 8192": for `ridge inspect`
};

struct RopeOptions {
  int n_rot;                                                    // rotated dimensions of a head
  int max_context;                                              // config.max_position_embeddings
  bool dynamic_exact = false;
};

// `parameters`: {"rope_type", "rope_theta", ...} as normalised by files. Throws Error naming an unknown type and those known.
std::unique_ptr<Rope> make_rope(const Json& parameters, const RopeOptions& options);
std::vector<std::string> known_rope_types();

}  // namespace ridge
