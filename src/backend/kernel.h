// A kernel is a candidate in an ordered list: the first whose supports() holds runs. The order is the policy; `ridge bench --kernels` prints what was chosen,
// and tests force each candidate by name. Candidates for one arithmetic agree bit for bit.
#pragma once
#include <string_view>

namespace ridge {

template <class Op, class Lane>
struct Kernel {
  std::string_view name;
  bool (*supports)(const Op&);
  void (*run)(const Op&, Lane&);
};

}  // namespace ridge
