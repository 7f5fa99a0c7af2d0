// A mixture of experts: a router scores the experts for each token, the best top_k of them run as feed-forward parts on that token, and their results are added
// with the router's weights. Rows are grouped by expert, so that each touched expert is read once per step. Shared experts run on every token.
//   out = sum over chosen e of weight(e) * down_e(act(gate_e x) * up_e x)  +  sigmoid(shared_gate x) * shared(x)
#pragma once
#include "model/model.h"

namespace ridge {

class Moe : public Module {
 public:
  struct Parts {
    const Weight* router;
    Tensor router_bias;                      // added to the logits; may be empty
    MoeRoute route;                          // its numbers, bias and hash; the tensors of a step are filled in here
    std::vector<const Weight*> gate, up, down;       // [n_experts]; gate may be empty: down(act(up x))
    Tensor gate_bias, up_bias, down_bias;    // f32 [n_experts, outputs]; may be empty
    ActKind act = ActKind::silu;
    float limit = 0;                         // of Activate
    bool weigh_inputs = false;               // the weights scale what goes into an expert, not what comes out (Llama 4)
    std::unique_ptr<Module> shared;          // may be null
    const Weight* shared_gate = nullptr;     // [1, d_model]; may be null
  };
  explicit Moe(Parts parts) : p_(std::move(parts)) {}
  void forward(Pass& pass, Tensor out, Tensor x) const override;
  bool is_row_wise() const override { return !p_.route.hash; }      // a hash takes the token of the row

  // Scratch buffers: logits, chosen experts, weights, plan, gate, up, results, what the shared experts returned.
  static constexpr int kLogits = 4, kChosen = 5, kWeights = 6, kPlan = 7, kGate = 8, kUp = 9, kResults = 10, kShared = 11;

 private:
  Parts p_;
};

}  // namespace ridge
