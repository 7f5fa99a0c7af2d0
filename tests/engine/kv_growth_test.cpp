// KV memory follows the policy of each group: pages of a window stop growing when a sequence has outgrown it, pages of full layers grow with every token.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/engine.h"

namespace ridge {
namespace {

const std::string kGolden = RIDGE_SOURCE_DIR "/../shared/golden/";

// Pages in use of each group after n tokens of one sequence.
std::vector<std::vector<int>> pages_by_tokens(Engine& engine, int n_tokens) {
  std::vector<std::vector<int>> used;
  engine.submit({.prompt = {5}, .params = {.temperature = 0, .max_tokens = n_tokens, .ignore_eos = true}});
  for (int n = 0; n < n_tokens - 1; ++n) {
    engine.step();
    std::vector<int>& now = used.emplace_back();
    for (int g = 0; g < engine.kv().n_groups(); ++g) now.push_back(engine.kv().n_pages(g) - engine.kv().n_free_pages(g));
  }
  return used;
}

void expect_windows_to_bound_pages(const std::string& name) {
  if (!std::filesystem::is_directory(kGolden + name)) GTEST_SKIP() << "no golden checkpoint " << name << " beside the project";
  constexpr int kTokens = 200, kPage = 16;
  const Checkpoint checkpoint = open_checkpoint(kGolden + name);
  Engine engine(checkpoint, {.device = "cpu", .max_context = 256, .max_seqs = 1, .max_batch_tokens = 16, .page_size = kPage});
  const auto used = pages_by_tokens(engine, kTokens);
  bool has_window = false;
  for (int g = 0; g < engine.kv().n_groups(); ++g) {
    const int window = engine.kv().spec(g).window;
    has_window |= window > 0;
    for (size_t n = 0; n < used.size(); ++n) {
      const int all = int(n) / kPage + 1;                                // pages of n + 1 tokens
      // A window begins inside a page, and the next token may need a page of its own.
      const int most = window > 0 ? std::min(all, (window + kPage - 1) / kPage + 1) : all;
      ASSERT_LE(used[n][g], most) << "group " << g << " after " << n + 1 << " tokens";
      if (window == 0) ASSERT_EQ(used[n][g], all) << "group " << g << " after " << n + 1 << " tokens";
    }
  }
  EXPECT_TRUE(has_window);
}

TEST(KvGrowth, Gemma3StopsAtItsWindowInWindowLayers) { expect_windows_to_bound_pages("gemma3"); }
TEST(KvGrowth, MistralStopsAtItsWindow) { expect_windows_to_bound_pages("mistral_swa"); }
TEST(KvGrowth, Gemma4StopsAtItsWindowInWindowLayers) { expect_windows_to_bound_pages("gemma4"); }

}  // namespace
}  // namespace ridge
