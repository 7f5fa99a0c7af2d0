// `ridge eval perplexity|logits|golden`: how good, and how right.
#include <memory>

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
  std::string model, text, ids, out;
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

void golden(const EvalFlags& f) {
  std::vector<std::string> cases;
  for (const std::string& folder : f.folders) {
    const auto found = find_golden_cases(folder);
    if (found.empty()) fail("{}: no golden case here (a folder with config.json and golden.safetensors)", folder);
    cases.insert(cases.end(), found.begin(), found.end());
  }
  const EngineOptions options = exact_engine_options(f.how);
  Table table({{"case"}, {"way"}, {"logits", true}, {"greedy logits", true}, {"greedy", true}, {"result"}});
  Json all = Json::array();
  int n_different = 0, n_failed = 0;
  Progress progress("checking");
  size_t done = 0;
  const std::vector<GoldenMode> modes = f.all_modes ? std::vector<GoldenMode>(std::begin(kGoldenModes), std::end(kGoldenModes)) : std::vector<GoldenMode>{GoldenMode::plain};
  for (const std::string& folder : cases) {
    progress.update(double(done++) / double(cases.size()), folder);
    const std::string name = folder.substr(folder.find_last_of('/', folder.size() - 2) + 1);
    for (const GoldenMode mode : modes) {
      try {
        const GoldenReport r = check_golden(folder, mode, options);
        const bool passed = r.passed(f.tolerance);
        n_different += !passed;
        table.add({name, std::string(name_of(mode)), fmt::format("{:.2e}", r.difference), fmt::format("{:.2e}", r.greedy_difference), fmt::format("{}/{}", r.n_agree, r.n_greedy), passed ? "ok" : "DIFFERS"});
        all.push_back({{"case", name}, {"way", name_of(mode)}, {"difference", r.difference}, {"greedy_difference", r.greedy_difference}, {"agree", r.n_agree}, {"greedy", r.n_greedy}, {"drift", r.drift}, {"passed", passed}});
      } catch (const Error& e) {
        ++n_failed;
        table.add({name, std::string(name_of(mode)), "-", "-", "-", e.what()});
        all.push_back({{"case", name}, {"way", name_of(mode)}, {"error", e.what()}, {"passed", false}});
      }
    }
  }
  progress.finish();
  fmt::print("{}", f.json ? all.dump(1) + "\n" : table.aligned());
  if (n_different + n_failed > 0)
    fail("{} of {} checks differ (tolerance {:g}){}", n_different, cases.size() * modes.size(), f.tolerance, n_failed > 0 ? fmt::format(", {} could not be made: the last column says why", n_failed) : "");
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
  g->add_flag("--json", f->json, "As JSON");
  add_model_flags(*g, f->how);
  g->callback([f] { golden(*f); });
}

}  // namespace ridge
