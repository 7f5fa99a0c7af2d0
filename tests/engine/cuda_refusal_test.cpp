// What the GPU has no kernels for is refused when a model is opened, before any request: by the family, the op, and what works instead.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "cuda/cuda_backend.h"
#include "engine/engine.h"

namespace ridge {
namespace {

TEST(CudaRefusal, NamesTheFamilyTheOpAndWhatWorks) {
  if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) GTEST_SKIP() << reason;
  set_log_level(LogLevel::error);
  int n_tried = 0;
  for (const auto& [name, op] : {std::pair{"mixtral", "moe_route"}, {"deepseek_v3", "head_matmul"}, {"deepseek_v4", "hyper_enter"}, {"mamba_bias", "short_conv"}, {"minimax_factors", "linear_scan"}}) {
    std::string folder;
    for (const char* root : {RIDGE_SOURCE_DIR "/tests/data/golden/", RIDGE_SOURCE_DIR "/../shared/golden/"})
      if (std::filesystem::is_directory(root + std::string(name))) folder = root + std::string(name);
    if (folder.empty()) continue;
    ++n_tried;
    const Checkpoint checkpoint = open_checkpoint(folder);
    try {
      Engine(checkpoint, {.device = "cuda", .n_threads = 1, .max_context = 64});
      ADD_FAILURE() << name << " was taken";
    } catch (const Error& e) {
      const std::string said = e.what();
      EXPECT_NE(said.find(std::string("models need the op ") + op), std::string::npos) << name << ": " << said;
      EXPECT_NE(said.find("--device cpu"), std::string::npos) << said;
    }
  }
  EXPECT_GT(n_tried, 0);
}

}  // namespace
}  // namespace ridge
