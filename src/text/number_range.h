// Numbers between two bounds, as digits: what a grammar needs to honour minimum and maximum.
//
// A range of whole numbers is split where the number of digits or the leading digits change: 7..123 = [7-9] | [1-9][0-9] | 1[0-1][0-9] | 12[0-3]. A decimal number is a whole
// part strictly inside the range with any fraction, or one at an end of it with the fractions that stay inside.
#pragma once
#include <string>

#include "text/gbnf.h"

namespace ridge {

// An end of a range: decimal text without exponent ("-12.5"), empty: none.
struct NumberBound {
  std::string digits;
  bool exclusive = false;
};

// Whole numbers have at most 15 digits where no bound says more, fractions at most 6 beyond those of the bounds.
Gbnf integers_between(const NumberBound& low, const NumberBound& high);
Gbnf numbers_between(const NumberBound& low, const NumberBound& high);

// "1e-3" -> "0.001"; throws Error naming `what` when it would need more than 60 digits.
std::string plain_decimal(std::string_view number, std::string_view what);

}  // namespace ridge
