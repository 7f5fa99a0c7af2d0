// q4_0 with one scale for 64 inputs instead of two. Scales a and b of neighbouring blocks become integers m times a common one, |m| <= 15: m (q - 8) still fits int8,
// so sums over 64 inputs are exact integers, which halves what a matrix unit's results cost in float. The integers are the fraction nearest to |b / a| among those with
// a larger part of 8 to 15: while the scales differ by less than a factor of 15, the two together are off by 1.7 % at most (between 14/15 and 1), mostly by far less.
#pragma once
#include <cstdint>

#include "tensor/tensor.h"

namespace ridge {
class Team;
}

namespace ridge::cpu {

struct ScalePair {
  uint16_t eight_s = 0;                      // f16 of 8 s, which is no larger than the larger scale
  int8_t m[2] = {};                          // a = s m[0], b = s m[1], nearly
};
ScalePair pair_scales(float a, float b);

// Whether a stored q4_0 weight may be packed so: the scales are off by 2 % in the root of the mean square at most. On normally distributed weights it is 0.5 %, which
// takes the error of a product, activations included, from 7.99 to 8.01 % of its size; with Student's t of 3 degrees 1.6 %, 12.07 to 12.13 %; with 2 degrees it is
// 4 %, and the answer no.
bool pairs_suit(const StoredWeight& stored, Team& team);

}  // namespace ridge::cpu
