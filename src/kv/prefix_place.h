// Where a sequence stands in the prefix tree: under which key, and at the node of its newest whole page there. The tree alone fills and empties it.
#pragma once
#include <string>

namespace ridge {

struct PrefixNode;

struct PrefixPlace {
  std::string key;                           // what must be equal beside the tokens: adapter and salt, see prefix_key(). The tree adds the rope class
  PrefixNode* node = nullptr;                // pinned; null: the sequence is not in the tree
  int n_pages = 0;                           // of the sequence that lie on the way to that node
  int n_parted = 0;                          // tokens after which its prompt parted from those before it
};

// `adapter` and `salt` may hold anything.
inline std::string prefix_key(const std::string& adapter, const std::string& salt) { return std::to_string(adapter.size()) + ":" + adapter + salt; }

}  // namespace ridge
