// The Hugging Face Hub's routes: what a repository holds, and one file of it. Large files are stored by their SHA-256, small ones by git's SHA-1; the Hub
// says which in (X-Linked-)ETag, and that is also the name under which its cache keeps them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "cli/http_client.h"

namespace ridge {

struct HubOptions {
  std::string endpoint = "https://huggingface.co";     // HF_ENDPOINT
  std::string token;                                   // HF_TOKEN; sent to the endpoint's host alone
};

struct HubRepository {
  std::string commit;
  std::vector<std::string> files;                      // safe relative paths
};

struct HubFile {
  std::string path, etag, commit;
  int64_t n_bytes = -1;                                // -1: unknown
};

class HubClient {
 public:
  explicit HubClient(HubOptions options);
  // Throws Error for an unknown or closed repository, saying what to do about it.
  HubRepository repository(const std::string& id, const std::string& revision) const;
  HubFile file(const std::string& id, const std::string& commit, const std::string& path) const;
  // Appends what is missing to `incomplete` (resuming what lies there), verifies it against the ETag and moves it to `target`. A wrong hash removes the file.
  void download(const std::string& id, const HubFile& file, const std::string& incomplete, const std::string& target,
                const std::function<void(int64_t done, int64_t total)>& progress) const;

 private:
  FetchResponse request(const std::string& method, const std::string& route, std::map<std::string, std::string> headers,
                       const std::function<bool(const FetchResponse&, std::string_view)>& sink, bool follow_elsewhere) const;
  [[noreturn]] void refuse(const FetchResponse& response, const std::string& id, const std::string& what) const;
  HubOptions options_;
  Url endpoint_;
};

}  // namespace ridge
