#include "model/modules/short_conv.h"

#include "base/error.h"

namespace ridge {

Conv make_conv(Construction& c, const std::vector<std::string>& names, int64_t channels, int n_taps, const std::string& bias) {
  std::vector<float> all;
  for (const std::string& name : names) {
    const StoredWeight w = c.weights.stored(name);
    // Promised weights (plan/) have no shape of their own: any shares that add up will do.
    const std::vector<float> part = c.weights.values(name, w.cols > 0 ? w.rows * w.cols : channels * n_taps / static_cast<int64_t>(names.size()));
    all.insert(all.end(), part.begin(), part.end());
  }
  if (static_cast<int64_t>(all.size()) != channels * n_taps)
    fail("tensor {} and what follows it hold {} numbers, but config.json promises {} channels of {}: the two are not of the same model", names[0],
         all.size(), channels, n_taps);
  std::vector<float> turned(all.size());
  for (int64_t ch = 0; ch < channels; ch++)
    for (int64_t i = 0; i < n_taps; i++) turned[static_cast<size_t>(i * channels + ch)] = all[static_cast<size_t>(ch * n_taps + i)];
  c.model.kv_specs.push_back({.window = n_taps, .planes = {KvPlane{.n_heads = 1, .head_dim = static_cast<int>(channels)}}});
  return {.weight = c.weights.constant("recurrent", names[0], turned, n_taps), .bias = bias.empty() ? Tensor{} : c.weights.vector("recurrent", bias, channels),
          .kv = static_cast<int>(c.model.kv_specs.size()) - 1};
}

void ShortConvMixer::forward(Pass& pass, Tensor out, Tensor x) const {
  const int64_t d = out.cols;
  const Tensor all = pass.scratch(4, 3 * d), mixed = pass.scratch(5, d), b = all.slice_cols(0, d), gate = all.slice_cols(d, d), value = all.slice_cols(2 * d, d);
  pass.run(Matmul{.out = {all}, .x = x, .w = {p_.in}, .bias = {p_.in_bias}});
  pass.run(Activate{.out = b, .gate = b, .up = value, .kind = ActKind::identity});
  pass.run(p_.conv.op(pass, mixed, b, false));
  pass.run(Activate{.out = mixed, .gate = gate, .up = mixed, .kind = ActKind::identity});
  pass.run(Matmul{.out = {out}, .x = mixed, .w = {p_.out}, .bias = {p_.out_bias}});
}

std::unique_ptr<Module> make_short_conv(Construction& c, const std::string& prefix, int64_t d_model, int n_taps, bool bias) {
  c.scratch(4, 3 * d_model);
  c.scratch(5, d_model);
  const auto bias_of = [&](const char* name, int64_t n) { return bias ? c.weights.vector("recurrent", prefix + name, n) : Tensor{}; };
  return std::make_unique<ShortConvMixer>(ShortConvMixer::Parts{
      .in = c.weights.matrix("recurrent", prefix + "in_proj.weight", 3 * d_model, d_model), .out = c.weights.matrix("recurrent", prefix + "out_proj.weight",
                                                                                                                    d_model, d_model),
      .in_bias = bias_of("in_proj.bias", 3 * d_model), .out_bias = bias_of("out_proj.bias", d_model),
      .conv = make_conv(c, {prefix + "conv.weight"}, d_model, n_taps, bias ? prefix + "conv.bias" : "")});
}

}  // namespace ridge
