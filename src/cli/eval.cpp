// `ridge eval perplexity|logits|golden`: how good, and how right.
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "engine/compatibility.h"
#include "engine/tokenizer_of.h"
#include "eval/golden.h"
#include "eval/logits.h"
#include "eval/perplexity.h"

namespace ridge {
namespace {

struct EvalFlags {
  std::string model, text, ids, out, as_served;
  std::vector<std::string> folders;
  int context = 1024, windows = 0, n_greedy = 0;
  double tolerance = 2e-3;
  bool json = false, all_modes = false;
  ModelFlags how;
};

void perplexity(const EvalFlags& f) {
  const Checkpoint checkpoint = open_checkpoint(f.model);
  const auto tokenizer = make_tokenizer(checkpoint);
  const std::string text = read_file(f.text);
  const std::vector<int32_t> ids = tokenizer->encode(text);
  Progress progress("loading " + checkpoint.name);
  EngineOptions options = scoring_options(engine_options(f.how), f.context);
  options.progress = [&](double share, const std::string& what) { progress.update(share, what); };
  Engine engine(checkpoint, options);
  progress.finish();
  Progress scoring("scoring");
  const auto show = [&](int done, int n, double so_far) { scoring.update(double(done) / n, fmt::format("{} of {} windows, {:.3f}", done, n, so_far)); };
  const Perplexity p = measure_perplexity(engine, ids, {.context = f.context, .max_windows = f.windows, .progress = show});
  scoring.finish();
  const std::string activations = activations_text(options.activations, engine.model());
  if (f.json) {
    const Json all = {{"model", checkpoint.name}, {"text", f.text}, {"tokens", ids.size()}, {"context", f.context}, {"windows", p.n_windows}, {"scored", p.n_scored}, {"perplexity", p.perplexity},
                      {"nats_per_token", p.nats_per_token}, {"standard_error", p.standard_error}, {"activations", activations}, {"seconds", p.seconds}};
    fmt::print("{}\n", all.dump(1));
    return;
  }
  fmt::print("perplexity {:.4f} +- {:.4f}\n", p.perplexity, p.perplexity * p.standard_error);
  fmt::print("{} windows of {} tokens, {} scored of {}; {} activations; {:.0f} tokens/s\n", p.n_windows, f.context, p.n_scored, ids.size(), activations,
             p.seconds > 0 ? double(p.n_scored) / p.seconds : 0);
}

// Where results are compared with another implementation's: these flags would be overruled.
EngineOptions exact_engine_options(const ModelFlags& how) {
  for (const auto& [flag, value] : {std::pair{"--activations", how.activations}, {"--kv-cache-dtype", how.kv_format}})
    if (value != "auto" && value != "f32") fail("{} {}: this compares in f32 throughout, KV included; leave the flag out, or see what it costs with `ridge eval perplexity`", flag, value);
  if (how.ctx_size > 0) fail("--ctx-size {}: the context is as long as the tokens that are compared; leave the flag out", how.ctx_size);
  return engine_options(how);
}

void logits(const EvalFlags& f) {
  const Checkpoint checkpoint = open_checkpoint(f.model);
  const std::vector<int32_t> ids = read_ids(f.ids);
  Engine engine(checkpoint, exact_options(exact_engine_options(f.how), int(ids.size()) + f.n_greedy));
  const auto results = compute_logits(engine, {ids}, f.n_greedy);
  write_logits(f.out, results.at(0));
  fmt::print("{}: logits [{}, {}]{}\n", f.out, ids.size(), results[0].n_vocab, f.n_greedy > 0 ? fmt::format(", {} greedy tokens", f.n_greedy) : "");
}

// Differences of logits that a trusted implementation has to its own f32 when it computes in bf16, by case.
std::map<std::string, double> read_served_differences(const std::string& path) {
  const Json json = read_json_file(path);
  if (!json.is_object() || !json.contains("differences") || !json["differences"].is_object()) fail("{}: must be {{\"differences\": {{\"case\": number, ...}}}}", path);
  std::map<std::string, double> differences;
  for (const auto& [name, value] : json["differences"].items()) {
    if (!value.is_number() || !(value.get<double>() >= 0)) fail("{}: the difference of {} is {}, not a number", path, name, value.dump());
    differences[name] = value.get<double>();
  }
  return differences;
}

// Cells of the table and fields of the JSON for one check.
struct Checked {
  std::vector<std::string> cells;
  Json fields;
  bool passed;
};

Checked check_exactly(const std::string& folder, GoldenMode mode, const EngineOptions& options, double tolerance) {
  const GoldenReport r = check_golden(folder, mode, options);
  return {.cells = {fmt::format("{:.2e}", r.difference), fmt::format("{:.2e}", r.greedy_difference), fmt::format("{}/{}", r.n_agree, r.n_greedy)},
          .fields = {{"difference", r.difference}, {"greedy_difference", r.greedy_difference}, {"agree", r.n_agree}, {"greedy", r.n_greedy}, {"drift", r.drift}},
          .passed = r.passed(tolerance)};
}

Checked check_as_served(const std::string& folder, const EngineOptions& options, std::optional<double> reference) {
  if (!reference) fail("the file of --as-served has no difference for this case; tests/golden/bf16_differences.py makes it");
  const ServedReport r = check_golden_as_served(folder, options);
  return {.cells = {fmt::format("{:.4f}", r.difference), fmt::format("{:.4f}", *reference), fmt::format("{:.2f}", r.difference / *reference), fmt::format("{}/{}", r.n_agree, r.n_decided)},
          .fields = {{"difference", r.difference}, {"reference", *reference}, {"rows", r.n_rows}, {"decided", r.n_decided}, {"agree", r.n_agree}},
          .passed = r.passed(*reference)};
}

void golden(const EvalFlags& f) {
  std::vector<std::string> cases;
  for (const std::string& folder : f.folders) {
    const auto found = find_golden_cases(folder);
    if (found.empty()) fail("{}: no golden case here (a folder with config.json and golden.safetensors)", folder);
    cases.insert(cases.end(), found.begin(), found.end());
  }
  const bool served = !f.as_served.empty();
  if (served && f.all_modes) fail("--as-served and --all-ways exclude each other: the ways are compared bit for bit in f32");
  const EngineOptions options = served ? engine_options(f.how) : exact_engine_options(f.how);
  const std::map<std::string, double> differences = served ? read_served_differences(f.as_served) : std::map<std::string, double>{};
  const std::vector<Column> columns = served ? std::vector<Column>{{"case"}, {"way"}, {"logits", true}, {"reference in bf16", true}, {"ratio", true}, {"first token", true}, {"result"}}
                                             : std::vector<Column>{{"case"}, {"way"}, {"logits", true}, {"greedy logits", true}, {"greedy", true}, {"result"}};
  Table table(columns);
  Json all = Json::array();
  int n_different = 0, n_failed = 0;
  Progress progress("checking");
  size_t done = 0;
  const std::vector<GoldenMode> modes = f.all_modes ? std::vector<GoldenMode>(std::begin(kGoldenModes), std::end(kGoldenModes)) : std::vector<GoldenMode>{GoldenMode::plain};
  for (const std::string& folder : cases) {
    progress.update(double(done++) / double(cases.size()), folder);
    const std::string name = folder.substr(folder.find_last_of('/', folder.size() - 2) + 1);
    for (const GoldenMode mode : modes) {
      const std::string way = served ? "as served" : std::string(name_of(mode));
      std::vector<std::string> row = {name, way};
      Json fields = {{"case", name}, {"way", way}};
      try {
        const auto found = differences.find(name);
        const Checked checked = served ? check_as_served(folder, options, found != differences.end() ? std::optional(found->second) : std::nullopt) : check_exactly(folder, mode, options, f.tolerance);
        n_different += !checked.passed;
        row.insert(row.end(), checked.cells.begin(), checked.cells.end());
        row.push_back(checked.passed ? "ok" : "DIFFERS");
        fields.update(checked.fields);
        fields["passed"] = checked.passed;
      } catch (const Error& e) {
        ++n_failed;
        row.resize(columns.size() - 1, "-");
        row.push_back(e.what());
        fields.update({{"error", e.what()}, {"passed", false}});
      }
      table.add(row);
      all.push_back(fields);
    }
  }
  progress.finish();
  fmt::print("{}", f.json ? all.dump(1) + "\n" : table.aligned());
  if (n_different + n_failed == 0) return;
  const std::string limit = served ? fmt::format("limit {:g} times the reference's difference, first tokens that lead by {:g} the same", kServedFactor, kServedMargin) : fmt::format("tolerance {:g}", f.tolerance);
  fail("{} of {} checks differ ({}){}", n_different, cases.size() * modes.size(), limit, n_failed > 0 ? fmt::format(", {} could not be made: the last column says why", n_failed) : "");
}

}  // namespace

void add_eval(CLI::App& app) {
  auto* sub = app.add_subcommand("eval", "How good, and how right: perplexity, logits, golden cases");
  sub->require_subcommand(1);
  auto f = std::make_shared<EvalFlags>();

  auto* p = sub->add_subcommand("perplexity", "Perplexity of a text; lower is better");
  p->add_option("model", f->model, "The model")->required();
  p->add_option("--text", f->text, "A UTF-8 text file")->required();
  p->add_option("--context", f->context, "Tokens of a window; windows do not overlap")->capture_default_str()->check(CLI::Range(2, 1 << 24));
  p->add_option("--windows", f->windows, "Score only the first K windows; 0: all")->check(CLI::NonNegativeNumber);
  p->add_flag("--json", f->json, "As JSON");
  add_model_flags(*p, f->how);
  p->footer("\nExample:\n  ridge eval perplexity smollm2 --text wiki.test.raw --context 1024 --windows 64 --activations f32");
  p->callback([f] { perplexity(*f); });

  auto* l = sub->add_subcommand("logits", "Logits of given tokens, to compare with another implementation (f32 activations and KV)");
  l->add_option("model", f->model, "The model")->required();
  l->add_option("--ids", f->ids, "A file with a JSON list of token ids")->required();
  l->add_option("--out", f->out, "The .safetensors file to write: logits [T,V], greedy [N], greedy_logits [N,V]")->required();
  l->add_option("--greedy", f->n_greedy, "Continue greedily by N tokens")->check(CLI::NonNegativeNumber);
  add_model_flags(*l, f->how);
  l->callback([f] { logits(*f); });

  auto* g = sub->add_subcommand("golden", "Check folders with a checkpoint and golden.safetensors (f32 activations and KV)");
  g->add_option("folders", f->folders, "Folders, or folders of folders")->required();
  g->add_option("--tolerance", f->tolerance, "Largest difference of a logit")->capture_default_str();
  g->add_flag("--all-ways", f->all_modes, "Also chunked, batched and preempted");
  g->add_option("--as-served", f->as_served, fmt::format("In the arithmetic that serves requests, not f32: within {:g} times the differences of FILE (tests/data/golden/bf16.json: Hugging Face's own in bf16)", kServedFactor))->type_name("FILE");
  g->add_flag("--json", f->json, "As JSON");
  add_model_flags(*g, f->how);
  g->callback([f] { golden(*f); });
}

}  // namespace ridge
