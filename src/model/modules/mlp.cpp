#include "model/modules/mlp.h"

namespace ridge {

void Mlp::forward(Pass& pass, Tensor out, Tensor x) const {
  const Tensor gate = pass.scratch(0, p_.gate->rows), up = p_.up ? pass.scratch(1, p_.up->rows) : Tensor{};
  pass.run(Matmul{.out = {gate, up}, .x = x, .w = {p_.gate, p_.up}, .bias = {p_.gate_bias, p_.up_bias}});
  if (p_.gate_scale != 1.0f) pass.run(ScaleCap{.x = gate, .scale = p_.gate_scale});
  pass.run(Activate{.out = gate, .gate = gate, .up = up, .kind = p_.act, .limit = p_.limit});
  pass.run(Matmul{.out = {out}, .x = gate, .w = {p_.down}, .bias = {p_.down_bias}});
  if (p_.out_scale != 1.0f) pass.run(ScaleCap{.x = out, .scale = p_.out_scale});
}

}  // namespace ridge
