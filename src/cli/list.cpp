// `ridge list`: the models on this machine, of our cache folder and the Hub's.
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "files/hub_cache.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

struct Listed { std::string name, path, kind; int64_t bytes = 0; std::time_t changed = 0; };

Listed look_at(const CachedModel& model) {
  Listed listed{.name = model.name, .path = model.path, .kind = model.path.ends_with(".gguf") ? "GGUF" : "safetensors"};
  std::error_code ec;
  bool has_gguf = false, has_safetensors = false;
  const auto count = [&](const fs::path& path) {
    const auto size = fs::file_size(path, ec);                         // follows the cache's links
    if (!ec) listed.bytes += int64_t(size);
    has_gguf |= path.extension() == ".gguf";
    has_safetensors |= path.extension() == ".safetensors";
    const auto time = fs::last_write_time(path, ec);
    if (!ec) listed.changed = std::max(listed.changed, std::time_t(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::file_clock::to_sys(time).time_since_epoch()).count()));
    ec.clear();
  };
  if (fs::is_directory(model.path, ec)) {
    for (fs::recursive_directory_iterator it(model.path, ec), end; !ec && it != end; it.increment(ec))
      if (!it->is_directory(ec)) count(it->path());
    if (has_gguf && !has_safetensors) listed.kind = "GGUF";
    else if (!has_safetensors) listed.kind = "no weights";
  } else {
    count(model.path);
  }
  return listed;
}

std::string date(std::time_t t) {
  char text[32] = "";
  std::tm parts{};
  if (t) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", ::localtime_r(&t, &parts));
  return text;
}

}  // namespace

void add_list(CLI::App& app) {
  auto* sub = app.add_subcommand("list", "The models on this machine");
  struct Flags { bool names = false, json = false; };
  auto flags = std::make_shared<Flags>();
  sub->add_flag("--names", flags->names, "Names alone, one a line");
  sub->add_flag("--json", flags->json, "As JSON");
  sub->callback([flags] {
    const CacheFolders folders = CacheFolders::from_environment();
    Table table({{"NAME"}, {"SIZE", true}, {"KIND"}, {"CHANGED"}});
    Json all = Json::array();
    for (const CachedModel& model : list_cached_models(folders)) {
      if (flags->names) {
        fmt::print("{}\n", model.name);
        continue;
      }
      const Listed m = look_at(model);
      table.add({m.name, human_bytes(double(m.bytes)), m.kind, date(m.changed)});
      all.push_back({{"name", m.name}, {"path", m.path}, {"kind", m.kind}, {"bytes", m.bytes}, {"changed", m.changed}, {"in_hub_cache", model.in_hub}});
    }
    if (flags->names) return;
    if (flags->json) fmt::print("{}\n", all.dump(1));
    else if (table.empty()) fmt::print("No models yet in {} or {}. `ridge pull smollm2` fetches a small one.\n", folders.ridge, folders.hub);
    else fmt::print("{}", table.aligned());
  });
}

}  // namespace ridge
