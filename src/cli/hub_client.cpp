#include "cli/hub_client.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "cli/hashes.h"
#include "cli/interrupt.h"

namespace ridge {
namespace {

constexpr int kMaxRedirects = 8, kMaxFiles = 100000;

std::string escaped_path(const std::string& path) {
  std::string out;
  for (unsigned char c : path) out += std::isalnum(c) || std::strchr("-._~/", c) ? std::string(1, char(c)) : fmt::format("%{:02X}", c);
  return out;
}

// A path that stays inside the folder it is joined to: names come from a server.
bool is_safe_path(const std::string& path) {
  if (path.empty() || path.front() == '/' || path.size() > 1024) return false;
  if (std::any_of(path.begin(), path.end(), [](unsigned char c) { return c < 0x20 || c == '\\' || c == 0x7f; })) return false;
  for (const auto& part : std::filesystem::path(path))
    if (part.empty() || part == "." || part == "..") return false;
  return true;
}

bool is_hex(const std::string& text, size_t n) {
  return text.size() == n && std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string plain_etag(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  return etag;
}

int64_t to_count(const std::string& text) {
  if (text.empty() || text.size() > 18 || !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) return -1;
  return std::stoll(text);
}

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

}  // namespace

HubClient::HubClient(HubOptions options) : options_(std::move(options)), endpoint_(parse_url(options_.endpoint)) {
  while (endpoint_.target.ends_with("/")) endpoint_.target.pop_back();
}

FetchResponse HubClient::request(const std::string& method, const std::string& route, std::map<std::string, std::string> headers,
                                const std::function<bool(const FetchResponse&, std::string_view)>& sink, bool follow_elsewhere) const {
  Url url = endpoint_;
  url.target += route;
  for (int i = 0; i < kMaxRedirects; ++i) {
    FetchRequest request{.method = method, .url = url, .headers = headers, .sink = sink};
    const bool home = url.origin() == endpoint_.origin();
    if (!options_.token.empty() && home) request.headers["Authorization"] = "Bearer " + options_.token;
    FetchResponse response = http_exchange(request);
    if (response.status < 300 || response.status > 399 || response.header("location").empty()) return response;
    const Url next = resolve_url(url, response.header("location"));
    // The file's ETag is on the Hub's own answer; where it redirects to for the bytes, other ETags apply.
    if (!follow_elsewhere && (next.origin() != endpoint_.origin() || !response.header("x-linked-etag").empty())) return response;
    if (url.scheme == "https" && next.scheme != "https") fail("{} redirects to an unencrypted address on {}; refused", url.host, next.host);
    url = next;
  }
  fail("{}{}: more than {} redirects", endpoint_.host, route, kMaxRedirects);
}

void HubClient::refuse(const FetchResponse& response, const std::string& id, const std::string& what) const {
  const std::string why = response.header("x-error-message");
  const std::string place = fmt::format("{}{}", options_.endpoint, what);
  switch (response.status) {
    case 401:
    case 403:
      fail("{} may not be read{} ({} answered {}{}). {}", id, options_.token.empty() ? " without a token" : " with this HF_TOKEN", place, response.status,
           why.empty() ? "" : ": " + why,
           options_.token.empty() ? "It does not exist, is private, or asks to accept a licence on its page first: then set HF_TOKEN to a token of yours" :
                                    "Check the name, the token's rights, and whether the page asks to accept a licence first");
    case 404: fail("{} was not found ({} answered 404{}). Check the spelling: it is org/name as on the Hub's page, with :file for one file", id, place, why.empty() ? "" : ": " + why);
    case 429: fail("the Hub asks to slow down ({} answered 429); try again later{}", place, options_.token.empty() ? ", or set HF_TOKEN" : "");
    default: fail("{} answered {}{}; try again later", place, response.status, why.empty() ? "" : ": " + why);
  }
}

HubRepository HubClient::repository(const std::string& id, const std::string& revision) const {
  const std::string route = fmt::format("/api/models/{}/revision/{}", id, escaped_path(revision));
  const FetchResponse response = request("GET", route, {}, nullptr, true);
  if (response.status != 200) refuse(response, id, route);
  const Json answer = parse_json(response.body, options_.endpoint + route);
  HubRepository repository;
  if (!answer.is_object() || !answer.contains("sha") || !answer["sha"].is_string() || !answer.contains("siblings") || !answer["siblings"].is_array())
    fail("{}{} did not answer as the Hub does (no \"sha\" or \"siblings\"); is HF_ENDPOINT right?", options_.endpoint, route);
  repository.commit = answer["sha"].get<std::string>();
  if (!is_hex(repository.commit, 40)) fail("{}{}: \"sha\" is '{}', not a commit", options_.endpoint, route, repository.commit.substr(0, 80));
  for (const Json& entry : answer["siblings"]) {
    if (!entry.is_object() || !entry.contains("rfilename") || !entry["rfilename"].is_string()) continue;
    const std::string path = entry["rfilename"].get<std::string>();
    if (!is_safe_path(path)) fail("{} lists a file named '{}', which would leave its folder; refused", id, path.substr(0, 200));
    if (repository.files.size() >= kMaxFiles) fail("{} lists more than {} files; refused", id, kMaxFiles);
    repository.files.push_back(path);
  }
  return repository;
}

HubFile HubClient::file(const std::string& id, const std::string& commit, const std::string& path) const {
  const std::string route = fmt::format("/{}/resolve/{}/{}", id, commit, escaped_path(path));
  const FetchResponse response = request("HEAD", route, {}, nullptr, false);
  if (response.status < 200 || response.status > 399) refuse(response, id, route);
  const auto first = [&](const char* a, const char* b) { return response.header(a).empty() ? response.header(b) : response.header(a); };
  HubFile file{.path = path, .etag = plain_etag(first("x-linked-etag", "etag")), .commit = response.header("x-repo-commit")};
  file.n_bytes = to_count(response.status >= 300 || !response.header("x-linked-size").empty() ? response.header("x-linked-size") : response.header("content-length"));
  if (!is_hex(file.etag, 64) && !is_hex(file.etag, 40))
    fail("{}{}: the ETag '{}' is neither a SHA-256 nor a git hash, so the file could not be checked", options_.endpoint, route, file.etag.substr(0, 80));
  if (file.commit.empty()) file.commit = commit;
  return file;
}

void HubClient::download(const std::string& id, const HubFile& file, const std::string& incomplete, const std::string& target,
                         const std::function<void(int64_t, int64_t)>& progress) const {
  const Descriptor out{::open(incomplete.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)};
  if (out.fd < 0) fail("cannot write {}: {}", incomplete, std::strerror(errno));
  if (::flock(out.fd, LOCK_EX | LOCK_NB) != 0) fail("{} is being downloaded by another process; wait for it, then try again", file.path);
  int64_t done = ::lseek(out.fd, 0, SEEK_END);
  if (file.n_bytes >= 0 && done > file.n_bytes) {
    if (::ftruncate(out.fd, 0) != 0) fail("cannot write {}: {}", incomplete, std::strerror(errno));
    done = ::lseek(out.fd, 0, SEEK_SET);
  }
  if (file.n_bytes < 0 || done < file.n_bytes) {
    std::map<std::string, std::string> headers;
    if (done > 0) headers["Range"] = fmt::format("bytes={}-", done);
    bool first = true;
    const auto sink = [&](const FetchResponse& head, std::string_view piece) {
      if (std::exchange(first, false) && done > 0) {
        const bool continues = head.status == 206 && head.header("content-range").starts_with(fmt::format("bytes {}-", done));
        if (!continues && ::ftruncate(out.fd, 0) == 0) done = ::lseek(out.fd, 0, SEEK_SET);        // the server began at the start again
      }
      if (file.n_bytes >= 0 && done + int64_t(piece.size()) > file.n_bytes) fail("{} of {} is longer than the {} bytes announced", file.path, id, file.n_bytes);
      while (!piece.empty()) {
        const ssize_t n = ::write(out.fd, piece.data(), piece.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("cannot write {}: {} (what was fetched is kept; free some space and pull again to go on)", incomplete, std::strerror(errno));
        piece.remove_prefix(size_t(n));
        done += n;
      }
      if (progress) progress(done, file.n_bytes);
      if (CatchInterrupt::raised()) fail("interrupted; what was fetched is kept, pull again to go on");
      return true;
    };
    const std::string route = fmt::format("/{}/resolve/{}/{}", id, file.commit, escaped_path(file.path));
    const FetchResponse response = request("GET", route, headers, sink, true);
    if (response.status != 200 && response.status != 206) refuse(response, id, route);
    if (file.n_bytes >= 0 && done != file.n_bytes) fail("{} of {} ended after {} of {} bytes; pull again to go on from there", file.path, id, done, file.n_bytes);
  }
  const std::string hash = file.etag.size() == 64 ? sha256_of_file(incomplete) : git_blob_sha1_of_file(incomplete);
  if (hash != file.etag) {
    ::unlink(incomplete.c_str());
    fail("{} of {} is damaged: its {} is {}, but {} was announced. It was removed; pull again", file.path, id, file.etag.size() == 64 ? "SHA-256" : "git hash", hash, file.etag);
  }
  if (::rename(incomplete.c_str(), target.c_str()) != 0) fail("cannot rename {} to {}: {}", incomplete, target, std::strerror(errno));
}

}  // namespace ridge
