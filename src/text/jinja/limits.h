// What an untrusted template may use. Passing one is an Error; none is near what a real chat template needs (the largest take some 10^4 steps).
#pragma once
#include <cstddef>
#include <cstdint>

namespace ridge::jinja {

constexpr int64_t kMaxSteps = 20'000'000;               // one per node evaluated or element touched, and one per 16 bytes of text made
constexpr size_t kMaxTextBytes = size_t{64} << 20;      // of any one text, and of the output
constexpr int64_t kMaxRange = 100'000;                  // jinja2's sandbox has the same
constexpr int kMaxNesting = 150;                        // of the template's blocks and parentheses
constexpr int kMaxExpressionDepth = 400;                // of an expression's tree: a + b + c + ... is deep without being nested
constexpr int kMaxCallDepth = 1200;                     // nodes being evaluated at once: about 120 calls of macros within macros
constexpr size_t kMaxSourceBytes = size_t{16} << 20;

}  // namespace ridge::jinja
