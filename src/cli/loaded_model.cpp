#include "cli/loaded_model.h"

#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "cli/downloads.h"
#include "cli/progress.h"
#include "engine/tokenizer_of.h"
#include "files/hub_cache.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// models/ridge-tiny of the source tree, of the installation, or of an installation that was moved.
std::string shipped_model() {
  std::error_code ec;
  const fs::path program = fs::read_symlink("/proc/self/exe", ec);
  for (const fs::path& root : {fs::path(RIDGE_SOURCE_DIR), fs::path(RIDGE_DATA_DIR), program.parent_path().parent_path() / "share" / "ridgeline"})
    if (const fs::path model = root / "models" / "ridge-tiny"; names_a_model(model.string())) return model.string();
  return "";
}

std::string default_model(bool offline) {
  if (const auto found = find_in_ridge_cache(CacheFolders::from_environment(), "smollm2")) return "smollm2";
  std::string reason = "--offline was given";
  if (!offline) {
    fmt::print(stderr, "No model was named: fetching smollm2 (SmolLM2-135M-Instruct, Apache-2.0, 93 MB). This happens once.\n");
    try {
      pull_smollm2();
      return "smollm2";
    } catch (const Error& e) {
      reason = e.what();
    }
  }
  const std::string shipped = shipped_model();
  if (shipped.empty()) fail("smollm2 could not be fetched ({}), and the tiny model that ships with ridge is not beside the program; name a model: ridge run MODEL", reason);
  fmt::print(stderr, "smollm2 is not here ({}).\nUsing ridge-tiny instead, a very small model that ships with ridge and knows little.\n", reason);
  return shipped;
}

}  // namespace

bool looks_like_model(const std::string& argument) {
  if (names_a_model(argument) || argument == "smollm2" || is_hub_name(argument)) return true;
  if (argument.find_first_of(" \n\t") != std::string::npos) return false;
  return argument.ends_with(".gguf") || argument.ends_with(".safetensors") || argument.starts_with("./") || argument.starts_with("../") || argument.starts_with("/");
}

std::string resolve_model(const std::string& model, bool offline) {
  if (model.empty()) return default_model(offline);
  if (names_a_model(model) || offline) return model;
  if (model == "smollm2") {
    fmt::print(stderr, "Fetching smollm2 (SmolLM2-135M-Instruct, Apache-2.0, 93 MB). This happens once.\n");
    pull_smollm2();
  } else if (is_hub_name(model)) {
    fmt::print(stderr, "{} is not here yet: fetching it from the Hugging Face Hub.\n", model);
    return pull_from_hub({.id = model});
  }
  return model;
}

LoadedModel load_for_text(const std::string& model, const ModelFlags& flags) {
  const auto start = std::chrono::steady_clock::now();
  EngineOptions options = engine_options(flags);
  options.max_seqs = 1;                      // one conversation,
  options.prefix_cache = true;               // of which a turn computes only what is new
  LoadedModel loaded{.checkpoint = open_checkpoint(model)};
  loaded.tokenizer = make_tokenizer(loaded.checkpoint);
  Progress progress("loading " + loaded.checkpoint.name);
  options.progress = [&](double share, const std::string& what) { progress.update(share, what); };
  loaded.engine = std::make_unique<Engine>(loaded.checkpoint, options);
  loaded.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

}  // namespace ridge
