// `ridge rm`: removes a model from a cache folder. Only what `ridge list` shows: a path of the user's own is never touched.
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "files/hub_cache.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

int64_t bytes_in(const fs::path& path) {
  std::error_code ec;
  if (fs::is_regular_file(fs::symlink_status(path, ec))) return int64_t(fs::file_size(path, ec));
  int64_t n = 0;
  for (fs::recursive_directory_iterator it(path, ec), end; !ec && it != end; it.increment(ec))
    if (fs::is_regular_file(it->symlink_status())) n += int64_t(it->file_size(ec));
  return n;
}

bool confirmed(const std::string& question) {
  fmt::print(stderr, "{} [y/N] ", question);
  std::string answer;
  return std::getline(std::cin, answer) && (answer == "y" || answer == "Y" || answer == "yes");
}

void remove_model(const std::string& name, bool yes) {
  const CacheFolders folders = CacheFolders::from_environment();
  fs::path target;
  for (const CachedModel& model : list_cached_models(folders)) {
    if (model.name != name) continue;
    if (model.in_hub) target = hub_repo_folder(folders, name);
    else if (fs::is_directory(folders.ridge + "/models/" + name)) target = folders.ridge + "/models/" + name;
    else target = model.path;
  }
  // What an interrupted pull left behind has no snapshot yet, so it is not listed.
  if (target.empty() && is_hub_name(name) && fs::is_directory(hub_repo_folder(folders, name))) target = hub_repo_folder(folders, name);
  if (target.empty()) fail("there is no model '{}' in the cache folders; `ridge list` shows those there are", name);
  const std::string size = human_bytes(double(bytes_in(target)));
  if (!yes && !stdin_is_terminal()) fail("removing {} ({}) needs --yes where nobody can be asked", name, size);
  if (!yes && !confirmed(fmt::format("Remove {} ({}, {})?", name, size, target.string()))) fail("{} was kept", name);
  std::error_code ec;
  fs::remove_all(target, ec);
  if (ec) fail("cannot remove {}: {}", target.string(), ec.message());
  fmt::print("removed {}, {} freed\n", name, size);
}

}  // namespace

void add_rm(CLI::App& app) {
  auto* sub = app.add_subcommand("rm", "Remove models from the cache folder");
  struct Flags { std::vector<std::string> models; bool yes = false; };
  auto flags = std::make_shared<Flags>();
  sub->add_option("model", flags->models, "Names as `ridge list` shows them")->required();
  sub->add_flag("-y,--yes", flags->yes, "Do not ask");
  sub->callback([flags] {
    for (const std::string& model : flags->models) remove_model(model, flags->yes);
  });
}

}  // namespace ridge
