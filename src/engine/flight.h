// A step from its plan to its collection. Usually one is under way; where the engine runs ahead, a second one is submitted behind it (run_ahead.cpp).
// Who leaves the batch, or starts anew, while a step with a row of its is under way gives that row up: the grant then names nobody, and nobody collects it.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "engine/request.h"
#include "engine/scheduler.h"

namespace ridge {

struct Flight {
  explicit Flight(const StepLimits& limits) : step(limits) {}

  Plan plan;
  Step step;
  Traffic traffic;                                     // that its ops were said to move
  TimePoint began;
  bool is_under_way = false;
  bool is_ahead = false;                               // its tokens are those that the step before it chose
  std::vector<std::unique_ptr<Sequence>> gone;         // ended, but what they have may be in use until this is done

  bool is_deserted() const {
    return std::none_of(plan.grants.begin(), plan.grants.end(), [](const Grant& grant) { return grant.sequence; });
  }
};

}  // namespace ridge
