// `ridge inspect`: what a model is made of, what a token of it costs, and whether this machine can run it. Only headers are read; a config.json alone is enough
// for the costs, which then come from promised weights.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "cli/command.h"
#include "cli/inspect_cost.h"
#include "cli/machine.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "engine/compatibility.h"
#include "engine/tokenizer_of.h"
#include "files/hf_config.h"
#include "files/tensor_source.h"
#include "model/model.h"
#include "plan/dry_backend.h"
#include "plan/promised_weights.h"
#include "quantize/quantizer.h"

namespace ridge {
namespace {

struct InspectFlags {
  std::string model, weights, kv_format = "auto";
  bool tensors = false, metadata = false, json = false, compat = false, chat_template = false, list = false;
  int context = 0, batch = 1;
};

struct Component { std::string name; int64_t n_tensors = 0, n_params = 0, bytes = 0; std::map<std::string, int64_t> formats; };

// Everything the report says, found out first; what fails is a sentence instead.
struct Findings {
  std::vector<Component> components;
  int64_t n_params = 0, bytes = 0, kv_bytes_per_token = 0, kv_bytes_held = 0;     // held: by a sequence of the context's length
  int context = 0;
  std::string family, tokenizer, activations, kv_format, problem;            // problem: why it cannot run
  std::vector<std::string> ropes;
  TokenCost cost;
};

// A folder or file that has a configuration and no weights is inspected as if it had them all.
bool is_config_alone(const std::string& model) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (fs::is_regular_file(model, ec)) return fs::path(model).extension() == ".json";
  if (!fs::is_regular_file(fs::path(model) / "config.json", ec)) return false;
  for (const auto& entry : fs::directory_iterator(model, ec))
    if (entry.path().extension() == ".safetensors") return false;
  return true;
}

Checkpoint open_inspected(const InspectFlags& flags) {
  const auto format = flags.weights.empty() ? FormatId::unknown : format_called(flags.weights).value_or(FormatId::unknown);
  if (!flags.weights.empty() && format == FormatId::unknown) fail("--weights {}: no such format; `ridge inspect --list` names them", flags.weights);
  Checkpoint c;
  if (is_config_alone(flags.model) && std::filesystem::is_regular_file(flags.model)) {
    c = {.path = flags.model, .name = std::filesystem::path(flags.model).stem().string(), .config = normalize_config(read_json_file(flags.model), flags.model),
         .generation_config = Json::object(), .metadata = Json::object(), .tokenizer_config = Json::object()};
  } else {
    c = open_checkpoint(flags.model, !is_config_alone(flags.model));
  }
  if (!c.weights || format != FormatId::unknown) promise_weights(c, format);
  return c;
}

int64_t n_numbers(const StoredWeight& w) { return w.rows * w.cols; }

Findings look_into(const Checkpoint& c, const InspectFlags& flags) {
  Findings f;
  const ModelOptions options{.kv_format = resolve_kv_format({.kv_format = kv_format_of(flags.kv_format)})};
  std::set<std::string> proper;                        // not the scales that a container lists as tensors of their own
  for (const TensorInfo& info : model_tensors(*c.weights)) proper.insert(info.name);
  for (const TensorInfo& info : c.weights->tensors()) {
    const std::string name = component_of(info.name);
    auto it = std::find_if(f.components.begin(), f.components.end(), [&](const Component& x) { return x.name == name; });
    if (it == f.components.end()) it = f.components.insert(f.components.end(), Component{.name = name});
    int64_t n = 1;
    for (const int64_t d : info.shape) n *= d;
    try {
      if (info.shape.size() == 2) n = n_numbers(c.weights->get(info.name));            // packed nibbles count as numbers
    } catch (const Error&) {
    }
    if (!proper.contains(info.name)) n = 0;
    it->n_tensors += 1;
    it->n_params += n;
    it->bytes += int64_t(info.bytes);
    it->formats[std::string(format(info.format).name)] += 1;
    f.n_params += n;
    f.bytes += int64_t(info.bytes);
  }
  try {
    f.tokenizer = make_tokenizer(c)->description();
  } catch (const Error& e) {
    f.tokenizer = fmt::format("none ({})", e.what());
  }
  try {
    DryBackend dry;
    const auto model = load_model(c, dry, options);
    f.family = model->family;
    f.activations = activations_text(FormatId::unknown, *model);
    f.kv_format = format(options.kv_format).name;
    f.context = flags.context > 0 ? flags.context : model->max_context;
    f.cost = cost_of_token(*model, f.context, flags.batch);
    f.kv_bytes_per_token = f.cost.kv_bytes_per_token;
    for (const KvGroupCost& g : f.cost.kv_groups) f.kv_bytes_held += g.bytes_held;
    if (c.weights->tensors().empty()) f.n_params = f.cost.n_params, f.bytes = f.cost.weight_bytes;
    for (const auto& rope : model->ropes) f.ropes.push_back(rope->description());
  } catch (const Error& e) {
    f.problem = e.what();
  }
  return f;
}

std::string joined(const std::map<std::string, int64_t>& formats) {
  std::string text;
  for (const auto& [name, n] : formats) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Table tensor_table(const Checkpoint& c) {
  Table table({{"tensor"}, {"shape"}, {"format"}, {"bytes", true}});
  for (const TensorInfo& t : c.weights->tensors()) table.add({t.name, shape_text(t.shape), std::string(format(t.format).name), std::to_string(t.bytes)});
  return table;
}

bool fits(const Findings& f, const Machine& machine) { return f.bytes + f.kv_bytes_held < machine.available_bytes; }

void print_json(const Checkpoint& c, const Findings& f, const InspectFlags& flags) {
  const Machine machine = this_machine();
  Json all = {{"name", c.name}, {"path", c.path}, {"container", c.weights->container()}, {"family", f.family}, {"parameters", f.n_params}, {"bytes", f.bytes}, {"components", Json::array()},
              {"tokenizer", f.tokenizer}, {"has_chat_template", !c.chat_template.empty()}, {"bos_token", c.bos_token}, {"eos_token", c.eos_token}, {"eos_ids", c.eos_ids}, {"rope", f.ropes},
              {"context", f.context}, {"kv_format", f.kv_format}, {"kv_bytes_per_token", f.kv_bytes_per_token}, {"memory_available", machine.available_bytes}, {"fits", f.problem.empty() && fits(f, machine)},
              {"runs", f.problem.empty()}, {"problem", f.problem}, {"activations", f.activations}, {"config", c.config}, {"generation_config", c.generation_config}};
  if (f.problem.empty()) all["cost"] = json_of(f.cost);
  for (const Component& x : f.components) all["components"].push_back({{"name", x.name}, {"tensors", x.n_tensors}, {"parameters", x.n_params}, {"bytes", x.bytes}, {"formats", x.formats}});
  if (flags.metadata) all["metadata"] = c.metadata;
  if (flags.chat_template) all["chat_template"] = c.chat_template;
  if (flags.tensors) {
    all["tensors"] = Json::array();
    for (const TensorInfo& t : c.weights->tensors())
      all["tensors"].push_back({{"name", t.name}, {"stored_name", t.stored_name}, {"shape", t.shape}, {"format", format(t.format).name}, {"bytes", t.bytes}, {"file", t.file}});
  }
  fmt::print("{}\n", all.dump(1, ' ', false, Json::error_handler_t::replace));
}

std::string config_summary(const Json& config) {
  std::string text;
  for (const auto& [key, label] : {std::pair{"num_hidden_layers", "layers"}, {"hidden_size", "wide"}, {"num_attention_heads", "heads"}, {"num_key_value_heads", "KV heads"}, {"head_dim", "per head"},
                                   {"intermediate_size", "in the MLP"}, {"vocab_size", "tokens known"}})
    if (config.contains(key) && config[key].is_number()) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", config[key].dump(), label);
  return text;
}

void print_report(const Checkpoint& c, const Findings& f) {
  const auto line = [](const char* name, const std::string& value) { fmt::print("{:<14}{}\n", name, value); };
  line("model", fmt::format("{} ({}, {})", c.name, f.family.empty() ? c.config.value("model_type", "unknown family") : f.family, c.weights->container()));
  line("path", c.path);
  line("shape", config_summary(c.config));
  line("size", fmt::format("{} parameters, {} ({:.2f} bits each)", human_count(double(f.n_params)), human_bytes(double(f.bytes)), f.n_params > 0 ? 8.0 * double(f.bytes) / double(f.n_params) : 0));
  for (const std::string& rope : f.ropes) line("positions", rope);
  line("tokenizer", f.tokenizer);
  line("chat template", c.chat_template.empty() ? "none" : fmt::format("{} characters; see it with --template", c.chat_template.size()));
  Table table({{"component"}, {"tensors", true}, {"parameters", true}, {"bytes", true}, {"share", true}, {"formats"}});
  for (const Component& x : f.components)
    table.add({x.name, std::to_string(x.n_tensors), human_count(double(x.n_params)), human_bytes(double(x.bytes)), fmt::format("{:.1f} %", f.bytes > 0 ? 100.0 * double(x.bytes) / double(f.bytes) : 0), joined(x.formats)});
  fmt::print("\n");
  if (!f.components.empty()) fmt::print("{}\n", table.aligned());
  if (!f.problem.empty()) {
    line("runs", "no: " + f.problem);
    return;
  }
  print_cost(f.cost, f.kv_format);
  const Machine machine = this_machine();
  if (!f.components.empty()) line("activations", f.activations);         // promised weights do not say how they are stored
  const int64_t needed = f.bytes + f.kv_bytes_held;
  if (fits(f, machine)) {
    line("fits", fmt::format("yes: {} of the {} available", human_bytes(double(needed)), human_bytes(double(machine.available_bytes))));
  } else {
    const int64_t left = machine.available_bytes - f.bytes, tokens = f.kv_bytes_per_token > 0 ? left / f.kv_bytes_per_token / 64 * 64 : 0;
    line("fits", tokens >= 64 ? fmt::format("with a shorter context: {} needed, {} available; up to --ctx-size {}", human_bytes(double(needed)), human_bytes(double(machine.available_bytes)), tokens)
                              : fmt::format("no: {} of weights, {} available; `ridge quantize` makes it smaller", human_bytes(double(f.bytes)), human_bytes(double(machine.available_bytes))));
  }
}

void print_compatibility() {
  Table table({{"device"}, {"activations"}, {"KV cache"}, {"works"}, {"note"}});
  for (const Combination& x : compatibility_table()) table.add({x.device, std::string(format(x.activations).name), std::string(format(x.kv_format).name), x.works ? "yes" : "no", x.note});
  fmt::print("{}", table.aligned());
}

void inspect(const InspectFlags& flags) {
  if (flags.compat) return print_compatibility();
  if (flags.list && flags.json) return fmt::print("{}\n", known_as_json().dump(1));
  if (flags.list) return print_known();
  if (flags.model.empty()) fail("which model? ridge inspect MODEL, or ridge inspect --list for what there is");
  const Checkpoint c = open_inspected(flags);
  if (flags.json) return print_json(c, look_into(c, flags), flags);
  const bool part = flags.tensors || flags.metadata || flags.chat_template;
  if (!part) print_report(c, look_into(c, flags));
  if (flags.tensors) fmt::print("{}", tensor_table(c).aligned());
  if (flags.metadata)
    for (const auto& [key, value] : c.metadata.items()) fmt::print("{} = {}\n", key, value.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (flags.chat_template) fmt::print("{}\n", c.chat_template.empty() ? "(no chat template)" : c.chat_template);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto* sub = app.add_subcommand("inspect", "What is in a model, and does it fit this machine");
  auto f = std::make_shared<InspectFlags>();
  sub->add_option("model", f->model, "The model: a folder, a .gguf file, a name, or a config.json alone");
  sub->add_flag("--list", f->list, "List the families, formats, rope variants and KV policies there are");
  sub->add_flag("--tensors", f->tensors, "List every tensor");
  sub->add_flag("--metadata", f->metadata, "List the file's metadata");
  sub->add_flag("--template", f->chat_template, "Print the chat template");
  sub->add_flag("--json", f->json, "As JSON; --tensors, --metadata and --template add to it");
  sub->add_flag("--compat", f->compat, "Print which features combine");
  sub->add_option("-c,--ctx-size,--context", f->context, "Context length to reckon with; 0: the model's")->check(CLI::NonNegativeNumber);
  sub->add_option("--batch", f->batch, "Sequences that decode together, to reckon with")->check(CLI::Range(1, 1 << 20));
  sub->add_option("--weights", f->weights, "Reckon as if all matrices were in this format (q4_0, nvfp4, ...)");
  add_kv_flag(*sub, f->kv_format);
  sub->callback([f] { inspect(*f); });
}

}  // namespace ridge
