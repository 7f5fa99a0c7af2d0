// Where models lie on this machine: Hugging Face's cache folder (shared with its own tools) and ours.
//
//   <hub>/models--org--name/refs/main            the commit, as text
//   <hub>/models--org--name/snapshots/<commit>/  its files (links into ../../blobs)
//   <ridge>/models/<name>/*.gguf                 or <ridge>/models/<name>/config.json and its files
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace ridge {

struct CacheFolders {
  std::string hub;                          // HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub
  std::string ridge;                        // RIDGE_CACHE, else XDG_CACHE_HOME/ridge, else ~/.cache/ridge

  // The only place that reads these environment variables.
  static CacheFolders from_environment();
};

// True for `org/name` as the Hub spells names: one slash, letters, digits, '-', '_' and '.', no part that is '.' or '..'.
bool is_hub_name(const std::string& model);
bool is_cache_name(const std::string& model);                    // the same without a slash

std::string hub_repo_folder(const CacheFolders& folders, const std::string& org_name);        // <hub>/models--org--name
std::optional<std::string> find_in_hub(const CacheFolders& folders, const std::string& org_name);    // the snapshot's folder
std::optional<std::string> find_in_ridge_cache(const CacheFolders& folders, const std::string& name);     // a .gguf file or a folder

struct CachedModel {
  std::string name, path;
  bool in_hub;
};
std::vector<CachedModel> list_cached_models(const CacheFolders& folders);

// The first .gguf of a folder by name (of several splits the first part); nothing when there is none or they are several different models.
std::optional<std::string> only_gguf_in(const std::string& folder);

}  // namespace ridge
