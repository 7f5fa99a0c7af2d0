#include "files/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/files.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_name(std::string_view part) {
  if (part.empty() || part.size() > 96 || part == "." || part == "..") return false;
  return std::all_of(part.begin(), part.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.'; });
}

// The commit that refs/main names, when it is one path component.
std::optional<std::string> main_commit(const std::string& repo) {
  std::ifstream file(repo + "/refs/main");
  std::string commit;
  if (!std::getline(file, commit)) return std::nullopt;
  while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back()))) commit.pop_back();
  return is_name(commit) ? std::optional(commit) : std::nullopt;
}

std::vector<fs::path> entries(const std::string& folder) {
  std::vector<fs::path> list;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) list.push_back(it->path());
  std::sort(list.begin(), list.end());
  return list;
}

// "-00002-of-00005.gguf": a later part of a split model.
bool is_later_split(const std::string& file) {
  const size_t of = file.rfind("-of-");
  return of != std::string::npos && of >= 6 && file[of - 6] == '-' && file.substr(of - 5, 5) != "00001" && std::isdigit(static_cast<unsigned char>(file[of - 1]));
}

}  // namespace

CacheFolders CacheFolders::from_environment() {
  std::string home = environment("HOME"), cache = environment("XDG_CACHE_HOME");
  if (home.empty()) home = ".";
  if (cache.empty()) cache = home + "/.cache";
  CacheFolders folders{.hub = environment("HF_HUB_CACHE"), .ridge = environment("RIDGE_CACHE")};
  if (folders.hub.empty()) folders.hub = environment("HF_HOME").empty() ? cache + "/huggingface/hub" : environment("HF_HOME") + "/hub";
  if (folders.ridge.empty()) folders.ridge = cache + "/ridge";
  return folders;
}

bool is_hub_name(const std::string& model) {
  const size_t slash = model.find('/');
  return slash != std::string::npos && is_name(std::string_view(model).substr(0, slash)) && is_name(std::string_view(model).substr(slash + 1));
}

bool is_cache_name(const std::string& model) { return is_name(model); }

std::string hub_repo_folder(const CacheFolders& folders, const std::string& org_name) {
  std::string flat = org_name;
  if (const size_t slash = flat.find('/'); slash != std::string::npos) flat.replace(slash, 1, "--");
  return folders.hub + "/models--" + flat;
}

std::optional<std::string> find_in_hub(const CacheFolders& folders, const std::string& org_name) {
  if (!is_hub_name(org_name)) return std::nullopt;
  const std::string repo = hub_repo_folder(folders, org_name);
  if (const auto commit = main_commit(repo); commit && is_folder(repo + "/snapshots/" + *commit)) return repo + "/snapshots/" + *commit;
  // A copy that was fetched by commit has no refs/main: if there is one snapshot, it is the one.
  const auto snapshots = entries(repo + "/snapshots");
  return snapshots.size() == 1 ? std::optional(snapshots[0].string()) : std::nullopt;
}

std::optional<std::string> only_gguf_in(const std::string& folder) {
  std::optional<std::string> found;
  for (const fs::path& path : entries(folder)) {
    if (path.extension() != ".gguf" || is_later_split(path.filename().string())) continue;
    if (found) return std::nullopt;
    found = path.string();
  }
  return found;
}

std::optional<std::string> find_in_ridge_cache(const CacheFolders& folders, const std::string& name) {
  if (!is_cache_name(name)) return std::nullopt;
  const std::string folder = folders.ridge + "/models/" + name;
  std::error_code ignored;
  if (fs::is_regular_file(folder + ".gguf", ignored)) return folder + ".gguf";
  if (!is_folder(folder)) return std::nullopt;
  if (fs::exists(folder + "/config.json", ignored)) return folder;
  return only_gguf_in(folder);
}

std::vector<CachedModel> list_cached_models(const CacheFolders& folders) {
  std::vector<CachedModel> models;
  for (const fs::path& path : entries(folders.ridge + "/models")) {
    const std::string name = path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
    if (const auto found = find_in_ridge_cache(folders, name)) models.push_back({name, *found, false});
  }
  for (const fs::path& path : entries(folders.hub)) {
    std::string name = path.filename().string();
    if (!name.starts_with("models--")) continue;
    name = name.substr(8);
    if (const size_t at = name.find("--"); at != std::string::npos) name.replace(at, 2, "/");
    if (const auto found = find_in_hub(folders, name)) models.push_back({name, *found, true});
  }
  return models;
}

}  // namespace ridge
