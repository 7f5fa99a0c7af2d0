// A repository of the Hub into the Hub's cache folder, in the layout that huggingface_hub shares with us:
//
//   models--org--name/blobs/<etag>                 the bytes, named by their hash; <etag>.incomplete while they arrive
//                     snapshots/<commit>/<path>    a link to ../../blobs/<etag>
//                     refs/<revision>              the commit a name stands for
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "cli/downloads.h"
#include "cli/hub_client.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/trimmed.h"
#include "files/hub_cache.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// HF_TOKEN, or the file that `hf auth login` writes.
std::string hub_token() {
  if (const std::string token = trimmed(environment("HF_TOKEN")); !token.empty()) return token;
  std::string path = environment("HF_TOKEN_PATH");
  if (path.empty()) path = (fs::path(CacheFolders::from_environment().hub).parent_path() / "token").string();
  std::error_code ec;
  return fs::is_regular_file(path, ec) ? trimmed(read_file(path)) : "";
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

// What running the model takes: the safetensors weights of the repository's root, and its small files.
std::vector<std::string> wanted_files(const HubRequest& request, const std::vector<std::string>& files) {
  std::vector<std::string> ggufs, weights, rest;
  for (const std::string& path : files) {
    const bool root = path.find('/') == std::string::npos;
    if (path.ends_with(".gguf")) ggufs.push_back(path);
    else if (root && (path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json"))) weights.push_back(path);
    else if (root && (path.ends_with(".json") || path.ends_with(".jinja") || path == "tokenizer.model" || path == "merges.txt")) rest.push_back(path);
  }
  if (!request.file.empty()) {
    if (std::find(files.begin(), files.end(), request.file) != files.end()) return {request.file};
    std::vector<std::string> matching;
    for (const std::string& path : ggufs)
      if (lower(path).find(lower(request.file)) != std::string::npos) matching.push_back(path);
    if (matching.empty()) fail("{} has no file {}; it has: {}", request.id, request.file, fmt::join(ggufs.empty() ? files : ggufs, ", "));
    if (matching.size() > 1) fail("{} has several files that match '{}': {}; name one", request.id, request.file, fmt::join(matching, ", "));
    return matching;
  }
  if (weights.empty()) {
    if (ggufs.size() == 1) return ggufs;
    if (ggufs.size() > 1) fail("{} has several GGUF files; choose one, as in `ridge pull {}:{}`. There are: {}", request.id, request.id, ggufs.front(), fmt::join(ggufs, ", "));
    fail("{} has neither safetensors nor GGUF weights; a checkpoint in another format must be converted first", request.id);
  }
  // Mistral's repositories carry the weights twice: once as a whole under another naming.
  const bool sharded = std::any_of(weights.begin(), weights.end(), [](const std::string& p) { return p.starts_with("model-") || p == "model.safetensors"; });
  if (sharded) std::erase_if(weights, [](const std::string& p) { return p.starts_with("consolidated"); });
  rest.insert(rest.end(), weights.begin(), weights.end());
  return rest;
}

void make_folder(const fs::path& folder) {
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) fail("cannot make the folder {}: {}", folder.string(), ec.message());
}

void link_into_snapshot(const fs::path& link, const fs::path& blob) {
  make_folder(link.parent_path());
  std::error_code ec;
  fs::remove(link, ec);
  fs::create_symlink(fs::relative(blob, link.parent_path()), link, ec);
  if (ec) fs::copy_file(blob, link, fs::copy_options::overwrite_existing, ec);         // a file system without links
  if (ec) fail("cannot write {}: {}", link.string(), ec.message());
}

}  // namespace

std::string pull_from_hub(const HubRequest& request) {
  if (!is_hub_name(request.id)) fail("'{}' is not a model of the Hub; they are called org/name, such as Qwen/Qwen3-0.6B", request.id);
  if (const std::string offline = environment("HF_HUB_OFFLINE"); offline == "1" || lower(offline) == "true") fail("HF_HUB_OFFLINE is set, so {} is not fetched", request.id);
  HubOptions options;
  if (const std::string endpoint = environment("HF_ENDPOINT"); !endpoint.empty()) options.endpoint = endpoint;
  while (options.endpoint.ends_with("/")) options.endpoint.pop_back();
  options.token = hub_token();
  const HubClient hub(options);
  CatchInterrupt interrupt;

  const HubRepository repository = hub.repository(request.id, request.revision);
  const fs::path home = hub_repo_folder(CacheFolders::from_environment(), request.id), snapshot = home / "snapshots" / repository.commit;
  make_folder(home / "blobs");
  make_folder(snapshot);
  make_folder(home / "refs");

  std::vector<HubFile> files;
  int64_t total = 0, before = 0;
  for (const std::string& path : wanted_files(request, repository.files)) {
    files.push_back(hub.file(request.id, repository.commit, path));
    const fs::path blob = home / "blobs" / files.back().etag;
    std::error_code ec;
    if (!fs::exists(blob, ec)) total += std::max<int64_t>(files.back().n_bytes, 0);
    if (const auto size = fs::file_size(blob.string() + ".incomplete", ec); !ec) before += int64_t(size);
    if (CatchInterrupt::raised()) fail("interrupted");
  }
  std::error_code ec;
  if (const auto space = fs::space(home, ec); !ec && int64_t(space.available) < total - before)
    fail("{} takes {} more, but {} has {} free", request.id, human_bytes(double(total - before)), home.string(), human_bytes(double(space.available)));

  Progress progress("fetching " + request.id);
  int64_t finished = 0;
  for (const HubFile& file : files) {
    const fs::path blob = home / "blobs" / file.etag;
    if (!fs::exists(blob, ec)) {
      hub.download(request.id, file, blob.string() + ".incomplete", blob.string(), [&](int64_t done, int64_t) { progress.update_bytes(finished + done, total); });
      finished += std::max<int64_t>(file.n_bytes, 0);
    }
    link_into_snapshot(snapshot / file.path, blob);
  }
  if (request.revision != repository.commit) {
    const fs::path ref = home / "refs" / request.revision;
    if (request.revision.find("..") == std::string::npos && request.revision.front() != '/') {
      make_folder(ref.parent_path());
      write_file(ref.string(), repository.commit);
    }
  }
  return files.size() == 1 && files[0].path.ends_with(".gguf") ? (snapshot / files[0].path).string() : snapshot.string();
}

}  // namespace ridge
