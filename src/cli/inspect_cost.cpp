#include "cli/inspect_cost.h"

#include <fmt/ranges.h>

#include "cli/progress.h"
#include "cli/table.h"
#include "formats/format.h"

namespace ridge {
namespace {

std::string count_text(int64_t n) { return n >= 1'000'000'000 ? fmt::format("{:.2f}B", double(n) * 1e-9) : human_count(double(n)); }
std::string share_text(double part, double all) { return fmt::format("{:.1f} %", all > 0 ? 100 * part / all : 0); }

// Those that weights come in: whole numbers only carry indices and codes of others.
std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format& f : all_formats())
    if (f.readable && (f.block_elems > 1 || f.name.find('f') != std::string_view::npos)) names.emplace_back(f.name);
  return names;
}

}  // namespace

void print_cost(const TokenCost& c, std::string_view kv_format) {
  const double all = c.weights_per_token + c.kv_per_token;
  fmt::print("parameters    {} in all, {} active for a token, {} of them streamed (a table gives one row)\n", count_text(c.n_params), count_text(c.n_active), count_text(c.n_streamed));
  fmt::print("weights       {} held, {} read per decoded token at batch {}\n", human_bytes(double(c.weight_bytes)), human_bytes(c.weights_per_token), c.batch);
  double held = 0;
  for (const KvGroupCost& g : c.kv_groups) held += double(g.bytes_held);
  fmt::print("KV cache      {} per token ({}); at {} tokens of context {} held and {} read per decoded token\n", human_bytes(double(c.kv_bytes_per_token)), kv_format, c.context, human_bytes(held),
             human_bytes(c.kv_per_token));
  Table table({{"a decoded token reads"}, {"parameters", true}, {"active", true}, {"held", true}, {"read", true}, {"share", true}});
  for (const ComponentCost& x : c.components)
    table.add({x.component, count_text(x.n_params), count_text(x.n_active), human_bytes(double(x.bytes)), human_bytes(x.bytes_per_token), share_text(x.bytes_per_token, all)});
  for (const KvGroupCost& g : c.kv_groups)
    table.add({fmt::format("KV, {} x {}", g.n_layers, g.policy), "", "", human_bytes(double(g.bytes_held)), human_bytes(g.bytes_read), share_text(g.bytes_read, all)});
  table.add({"all", count_text(c.n_params), count_text(c.n_active), "", human_bytes(all), share_text(all, all)});
  fmt::print("\n{}\n", table.aligned());
  Table groups({{"KV group"}, {"layers", true}, {"per token", true}, {"held by a sequence", true}});
  for (const KvGroupCost& g : c.kv_groups)
    groups.add({g.policy, std::to_string(g.n_layers), g.bytes_per_token > 0 ? human_bytes(double(g.bytes_per_token)) : "constant", human_bytes(double(g.bytes_held))});
  if (!groups.empty()) fmt::print("{}\n", groups.aligned());
}

Json json_of(const TokenCost& c) {
  Json j = {{"context", c.context}, {"batch", c.batch}, {"parameters", c.n_params}, {"active_parameters", c.n_active}, {"streamed_parameters", c.n_streamed},
            {"weight_bytes", c.weight_bytes}, {"weight_bytes_per_token", c.weights_per_token}, {"kv_bytes_per_token", c.kv_bytes_per_token},
            {"kv_bytes_read_per_token", c.kv_per_token}, {"bytes_per_token", c.weights_per_token + c.kv_per_token}, {"components", Json::array()}, {"kv_groups", Json::array()}};
  for (const ComponentCost& x : c.components)
    j["components"].push_back({{"name", x.component}, {"parameters", x.n_params}, {"active_parameters", x.n_active}, {"bytes", x.bytes}, {"bytes_per_token", x.bytes_per_token}});
  for (const KvGroupCost& g : c.kv_groups)
    j["kv_groups"].push_back({{"policy", g.policy}, {"layers", g.n_layers}, {"bytes_per_token", g.bytes_per_token}, {"bytes_held", g.bytes_held}, {"bytes_read_per_token", g.bytes_read}});
  return j;
}

Json known_as_json() { return {{"families", known_families()}, {"formats", format_names()}, {"rope", known_rope_types()}, {"kv_policies", kv_policies()}}; }

void print_known() {
  const auto line = [](const char* name, const std::vector<std::string>& values) { fmt::print("{:<14}{}\n", name, fmt::join(values, ", ")); };
  line("families", known_families());
  line("formats", format_names());
  line("positions", known_rope_types());
  line("KV policies", kv_policies());
}

}  // namespace ridge
