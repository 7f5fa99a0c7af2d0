#include "files/gguf_names.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "files/gguf/common.h"
#include "files/tensor_table.h"

namespace ridge {
namespace {

using Digits = std::vector<std::string_view>;

// `name` as an instance of a pattern: the digits that stand for its holes.
std::optional<Digits> match(std::string_view pattern, std::string_view name) {
  Digits found;
  while (true) {
    const size_t hole = pattern.find("{}");
    if (hole == std::string_view::npos) return pattern == name ? std::optional(found) : std::nullopt;
    if (!name.starts_with(pattern.substr(0, hole))) return std::nullopt;
    name.remove_prefix(hole);
    pattern.remove_prefix(hole + 2);
    const size_t n = std::min(name.find_first_not_of("0123456789"), name.size());
    if (n == 0 || n > 9) return std::nullopt;
    found.push_back(name.substr(0, n));
    name.remove_prefix(n);
  }
}

std::string fill(std::string_view pattern, const Digits& digits) {
  std::string name(pattern);
  for (const std::string_view d : digits)
    if (const size_t hole = name.find("{}"); hole != std::string::npos) name.replace(hole, 2, d);
  return name;
}

int n_holes(std::string_view pattern) {
  const size_t first = pattern.find("{}");
  return first == std::string_view::npos ? 0 : pattern.find("{}", first + 2) == std::string_view::npos ? 1 : 2;
}

constexpr std::array<std::string_view, 4> kSuffixes = {".weight", ".bias", ".scale", ".input_scale"};

// Calls use(line, other side's name, digits) for each line of a table that `name` is an instance of, with and without its suffix, until `use` has enough.
template <class Use>
bool each_match(const std::vector<GgufName>& table, std::string_view name, bool from_gguf, Use use) {
  for (const GgufName& n : table) {
    const std::string_view from = from_gguf ? n.gguf : std::string_view(n.hf), to = from_gguf ? std::string_view(n.hf) : n.gguf;
    if (const auto digits = match(from, name); digits && use(n, fill(to, *digits), *digits)) return true;
    for (const std::string_view suffix : kSuffixes) {
      if (!name.ends_with(suffix)) continue;
      const auto digits = match(from, name.substr(0, name.size() - suffix.size()));
      if (digits && use(n, fill(to, *digits).append(suffix), *digits)) return true;
    }
  }
  return false;
}

std::string nearest_architectures(std::string_view name) {
  std::vector<std::pair<size_t, std::string_view>> names;
  for (const GgufArchitecture& a : gguf_architectures()) names.emplace_back(name.size() < 256 ? edit_distance(name, a.gguf) : 256, a.gguf);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string text;
  for (size_t i = 0; i < names.size() && i < 4; ++i) text += (i ? ", " : "") + std::string(names[i].second);
  return text;
}

}  // namespace

const std::vector<GgufArchitecture>& gguf_architectures() {
  static const std::vector<GgufArchitecture> all = [] {
    std::vector<GgufArchitecture> list = mixture_architectures();          // Mixtral before Llama: both are "llama"
    for (auto* more : {dense_architectures, recurrent_architectures})
      for (GgufArchitecture& a : more()) list.push_back(std::move(a));
    return list;
  }();
  return all;
}

const GgufArchitecture* find_gguf_architecture(std::string_view gguf_name) {
  const GgufArchitecture* found = nullptr;
  for (const GgufArchitecture& a : gguf_architectures())
    if (a.gguf == gguf_name && (!found || !a.applies)) found = &a;
  return found;
}

const GgufArchitecture& gguf_architecture_of(const GgufFile& file) {
  const auto name = file.metadata().string("general.architecture");
  if (!name) fail("{}: metadata 'general.architecture' is missing", file.path());
  const GgufKeys keys(file, *name);
  for (const GgufArchitecture& a : gguf_architectures())
    if (a.gguf == *name && (!a.applies || a.applies(keys))) return a;
  fail("{}: general.architecture is '{}', which is not supported; the nearest of those that are: {}", file.path(), *name, nearest_architectures(*name));
}

const GgufArchitecture* gguf_architecture_of(const Json& config) {
  const auto it = config.find("model_type");
  if (it == config.end() || !it->is_string()) return nullptr;
  for (const GgufArchitecture& a : gguf_architectures())
    if (a.model_type == it->get_ref<const std::string&>() && (!a.suits || a.suits(config))) return &a;
  return nullptr;
}

std::optional<GgufMatch> match_gguf_name(const GgufArchitecture& a, std::string_view name) {
  std::optional<GgufMatch> found;
  for (const auto* table : {&a.names, &common_names()})
    if (each_match(*table, name, true, [&](const GgufName& n, std::string hf, const Digits&) {
          found = GgufMatch{&n, std::move(hf)};
          return true;
        }))
      break;
  return found;
}

std::vector<GgufMatch> match_hf_name(const GgufArchitecture& a, std::string_view name) {
  std::vector<GgufMatch> found;
  for (const auto* table : {&a.names, &common_names()}) {
    each_match(*table, name, false, [&](const GgufName& n, std::string gguf, const Digits& digits) {
      if (n.read_only) return false;
      int64_t index = -1;
      if (n_holes(n.hf) == n_holes(n.gguf) + 1) std::from_chars(digits.back().data(), digits.back().data() + digits.back().size(), index);
      found.push_back({&n, std::move(gguf), index});
      return false;
    });
    if (!found.empty()) break;
  }
  return found;
}

int64_t layer_in(std::string_view name) {
  for (const std::string_view marker : {std::string_view("layers."), std::string_view("h.")}) {
    const size_t at = name.find(marker);
    if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) continue;
    int64_t layer = -1;
    std::from_chars(name.data() + at + marker.size(), name.data() + name.size(), layer);
    return layer;
  }
  return -1;
}

}  // namespace ridge
