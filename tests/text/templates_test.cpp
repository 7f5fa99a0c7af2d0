// Chat templates of real models, rendered byte for byte as jinja2 does when transformers drives it: the collection in ../shared/templates where it is
// present, and our own templates under tests/data/jinja always. Each NAME.jinja has a NAME.json of cases with "out" or "error".
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "text/chat.h"
#include "text/day_of_the_cases.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// The cases were rendered on 15 November 2026.
struct Tally {
  int n_templates = 0, n_cases = 0, n_errors = 0;
};

Tally check_folder(const std::string& folder) {
  Tally tally;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".jinja") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    ++tally.n_templates;
    const ChatTemplate chat({.template_source = read_file(folder + "/" + name + ".jinja"), .bos_token = "<s>", .eos_token = "</s>"}, name);
    for (const Json& c : read_json_file(folder + "/" + name + ".json")) {
      ++tally.n_cases;
      SCOPED_TRACE(name + ", case " + c["case"].get<std::string>());
      Json extra = c["kwargs"];
      extra["tools"] = c["tools"];
      try {
        const std::string out = chat.render(c["messages"], c["add_generation_prompt"].get<bool>(), extra, day_of_the_cases());
        if (c.contains("error")) {
          ADD_FAILURE() << "should raise: " << c["error"];
        } else {
          EXPECT_EQ(out, c["out"].get<std::string>());
        }
      } catch (const Error& error) {
        ++tally.n_errors;
        if (!c.contains("error")) {
          ADD_FAILURE() << error.what();
        } else {
          EXPECT_NE(std::string(error.what()).find(c["error"].get<std::string>()), std::string::npos) << error.what() << "\n" << c["error"];
        }
      }
    }
  }
  return tally;
}

TEST(Templates, RealModelsRenderAsJinja2Does) {
  const std::string folder = RIDGE_SOURCE_DIR "/../shared/templates";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const Tally tally = check_folder(folder);
  EXPECT_GE(tally.n_templates, 51);
  EXPECT_GE(tally.n_cases, 714);
  EXPECT_EQ(tally.n_errors, 59);
}

TEST(Templates, OurOwnRenderAsJinja2Does) {
  const Tally tally = check_folder(RIDGE_SOURCE_DIR "/tests/data/jinja");
  EXPECT_GE(tally.n_templates, 5);
  EXPECT_GE(tally.n_cases, 20);
}

}  // namespace
}  // namespace ridge
