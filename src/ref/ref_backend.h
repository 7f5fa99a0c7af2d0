// `ref`: every op in plain scalar f32, as short as can be. It is the specification that the other backends are tested against, so it is never clever.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace ridge {

std::unique_ptr<Backend> make_ref_backend();

}  // namespace ridge
