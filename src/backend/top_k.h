// The k largest of some scores in the order in which a widely used tensor library leaves ties: a selection (std::nth_element, or std::partial_sort where k is
// small) over all entries by score alone, so that which of several equal ones stay depends on how many entries there are in all. Reference outputs were made that way.
#pragma once
#include <cstdint>
#include <span>

namespace ridge {

struct Scored { float score; int32_t entry; };

// Moves the k best to the front, in no particular order.
void select_top_k(std::span<Scored> scored, int k);

}  // namespace ridge
