#include "model/modules/mlp.h"

namespace ridge {

void Mlp::forward(Pass& pass, Tensor out, Tensor x) const {
  const Tensor gate = pass.scratch(0, p_.gate->rows), up = p_.up ? pass.scratch(1, p_.up->rows) : Tensor{};
  pass.run(Matmul{.out = {gate, up}, .x = x, .w = {p_.gate, p_.up}, .bias = {p_.gate_bias, p_.up_bias}});
  pass.run(Activate{.out = gate, .gate = gate, .up = up, .kind = p_.act});
  pass.run(Matmul{.out = {out}, .x = gate, .w = {p_.down}, .bias = {p_.down_bias}});
}

}  // namespace ridge
