// `ridge bench`: how fast a model is here, and how near to the limit: the speed at which this machine reads memory, measured in the same run.
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/loaded_model.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "cli/random_weights.h"
#include "cpu/cpu_backend.h"
#include "engine/compatibility.h"
#include "engine/device.h"
#include "files/gguf_writer.h"

namespace ridge {
namespace {

struct BenchFlags {
  std::string model, shape, save, compare, trace;
  std::vector<std::string> formats = {"q8_0"};
  std::vector<int> n_prompt = {512}, n_answer = {128}, depths = {0}, threads, batches = {1};
  int n_repetitions = 5, n_layers = 0;
  SamplingParams sampling{.temperature = 0};
  bool csv = false, json = false, kernels = false, profile = false, offline = false, no_warmup = false;
  ModelFlags how;
};

std::vector<BenchTest> plan_tests(const BenchFlags& f, int n_threads) {
  std::vector<BenchTest> tests;
  for (const int batch : f.batches)
    for (const int depth : f.depths) {
      for (const int n : f.n_prompt)
        if (n > 0) tests.push_back({BenchTest::Kind::prefill, n, depth, batch, n_threads});
      for (const int n : f.n_answer)
        if (n > 0) tests.push_back({BenchTest::Kind::decode, n, depth, batch, n_threads, f.sampling});
    }
  return tests;
}

// The engine's options with room for the largest test and no more.
EngineOptions bench_options(const BenchFlags& f, const Json& config, const std::vector<BenchTest>& tests, int n_threads) {
  EngineOptions options = engine_options(f.how);
  int64_t context = 64;
  options.max_seqs = 1;
  for (const BenchTest& t : tests) {
    context = std::max<int64_t>(context, t.depth + t.n_tokens + 66 + t.batch);
    options.max_seqs = std::max(options.max_seqs, t.batch);
  }
  options.n_threads = n_threads;
  if (options.max_context == 0) options.max_context = int(std::min<int64_t>(context, 1 << 24));
  if (options.max_seqs > 1) options.kv_bytes = kv_bytes_needed(config, options.max_context, options.max_seqs, options.kv_format == FormatId::unknown ? FormatId::f32 : options.kv_format);
  options.profile = f.profile || !f.trace.empty();
  return options;
}

BenchModel describe(const Engine& engine, const std::string& name, const std::string& device, double load_seconds) {
  BenchModel m{.name = name, .streamed_bytes = engine.model().streamed_bytes(), .device = device, .activations = activations_text(engine.options().activations, engine.model()), .load_seconds = load_seconds};
  for (const ComponentSize& c : engine.model().sizes) m.n_params += c.n_params, m.bytes += c.bytes;
  return m;
}

int64_t sweep_bytes() { return this_machine().available_bytes > (int64_t{4} << 30) ? int64_t{1} << 29 : int64_t{1} << 27; }

// Caches, clocks and captured graphs are then as they stay: a whole prompt, or an answer of a few tokens, of the same shape as what is measured.
void warm_up(Engine& engine, BenchTest test) {
  if (test.kind == BenchTest::Kind::decode) test.n_tokens = std::min(test.n_tokens, 8);
  BenchResult unused;
  run_once(engine, test, unused);
}

// All tests of one model at one thread count; rows are appended.
void measure(const BenchFlags& f, const Checkpoint& checkpoint, int n_threads, std::vector<BenchRow>& rows) {
  const auto tests = plan_tests(f, n_threads);
  if (tests.empty()) fail("nothing to measure: give -p or -n more than 0");
  Progress progress("bench " + checkpoint.name);
  EngineOptions options = bench_options(f, checkpoint.config, tests, n_threads);
  options.progress = [&](double share, const std::string& what) { progress.update(share, "loading, " + what); };
  const auto start = std::chrono::steady_clock::now();
  Engine engine(checkpoint, options);
  const double load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // The cpu backend has packed copies of all matrices but the embedding; ref reads the originals.
  if (const auto* random = dynamic_cast<const RandomWeights*>(checkpoint.weights.get()); random && engine.options().device != "ref") random->release_packed();
  const BenchModel model = describe(engine, checkpoint.name, engine.backend().name(), load_seconds);
  if (!f.trace.empty()) engine.ledger().keep_trace(true);

  const int64_t n_bytes = sweep_bytes();
  double bandwidth = measure_read_bandwidth_of(engine.options().device, n_threads, n_bytes, 0.5);
  const size_t first = rows.size();
  for (size_t i = 0; i < tests.size(); ++i) {
    BenchResult result;
    if (!f.no_warmup) {
      progress.update(double(i) / double(tests.size()), tests[i].name() + ", warming up");
      warm_up(engine, tests[i]);
    }
    for (int r = 0; r < f.n_repetitions; ++r) {
      progress.update((double(i) + double(r) / f.n_repetitions) / double(tests.size()), fmt::format("{}, {} of {}", tests[i].name(), r + 1, f.n_repetitions));
      run_once(engine, tests[i], result);
    }
    bandwidth = std::max(bandwidth, measure_read_bandwidth_of(engine.options().device, n_threads, n_bytes, 0.3));
    rows.push_back({model, result});
    if (f.profile) {
      progress.finish();
      fmt::print(stderr, "\n{}, {} threads:\n{}", tests[i].name(), n_threads, ledger_table(engine.ledger(), bandwidth).aligned("  "));
    }
  }
  for (size_t i = first; i < rows.size(); ++i) rows[i].result.read_bandwidth = bandwidth;
  if (!f.trace.empty()) engine.ledger().write_trace(f.trace);
}

void print_kernels(const std::string& only) {
  for (const std::string& isa : available_isas())
    if (only.empty() || only == isa) fmt::print("{:<8} matmul: {}\n", isa, fmt::join(matmul_candidates(isa), ", "));
  fmt::print("The first of a list that supports an operation runs it.\n");
}

void save_model(const Checkpoint& checkpoint, const std::string& path) {
  if (!path.ends_with(".gguf")) fail("--save {}: the name must end in .gguf", path);
  std::vector<TensorSource> sources;
  for (const TensorInfo& info : checkpoint.weights->tensors()) sources.push_back(converted(*checkpoint.weights, info, info.format));
  Progress progress("writing " + path);
  write_gguf_model(path, checkpoint.config, {{"general.name", checkpoint.name}}, sources, [&](uint64_t done, uint64_t total) { progress.update_bytes(int64_t(done), int64_t(total)); });
}

FormatId shape_format(const std::string& name) {
  const auto id = format_called(name);
  if (!id) fail("--format {}: not known; use f32, f16, bf16, fp8, q8_0, q4_0, q4_1, q6_k, nvfp4 or mxfp4", name);
  return *id;
}

void bench(const BenchFlags& f, bool quiet) {
  if (f.kernels) return print_kernels(f.how.isa);
  f.sampling.validate();
  if (f.sampling.greedy() && (f.sampling.top_k > 0 || f.sampling.top_p < 1 || f.sampling.min_p > 0)) fail("--top-k, --top-p and --min-p cut what is drawn from, and at --temperature 0 nothing is drawn: give --temperature 1 as well");
  const Json earlier = f.compare.empty() ? Json::array() : read_earlier(f.compare);
  if (!f.shape.empty() && !f.model.empty()) fail("give a model or --shape, not both");
  if (f.n_layers > 0 && f.shape.empty()) fail("--layers cuts a --shape; there is none");
  if (!f.save.empty() && f.shape.empty()) fail("--save writes the model of a --shape; there is none");
  std::vector<Checkpoint> checkpoints;
  std::vector<int> threads = f.threads.empty() ? std::vector<int>{f.how.n_threads} : f.threads;
  for (int& t : threads)
    if (t <= 0) t = this_machine().n_usable;
  std::vector<BenchRow> rows;
  const auto measure_all = [&](const Checkpoint& checkpoint) {
    for (const int t : threads) measure(f, checkpoint, t, rows);
  };
  if (f.shape.empty()) {
    measure_all(open_checkpoint(resolve_model(f.model, f.offline)));
  } else {
    if (!f.save.empty() && f.formats.size() > 1) fail("--save writes one file: give one --format");
    for (const std::string& name : f.formats) {
      BenchShape shape = find_shape(f.shape);
      if (f.n_layers > 0) shape.n_layers = f.n_layers;
      const Checkpoint checkpoint = random_checkpoint(shape, shape_format(name));
      if (!f.save.empty()) save_model(checkpoint, f.save);
      measure_all(checkpoint);
    }
  }
  if (f.json) {
    const Machine machine = this_machine();
    Json all = {{"ridge", RIDGE_VERSION}, {"cpu", machine.cpu}, {"n_usable", machine.n_usable}, {"results", Json::array()}};
    for (const BenchRow& row : rows) all["results"].push_back(to_json(row));
    fmt::print("{}\n", all.dump(1));
    return;
  }
  const Table table = to_table(rows, earlier);
  if (f.csv) {
    fmt::print("{}", table.csv());
    return;
  }
  fmt::print("{}", table.markdown());
  if (quiet) return;
  const BenchRow& last = rows.back();
  fmt::print("\n{}; {} parameters; {} activations; loaded in {}; reads {}/s from memory\n", last.model.device, human_count(double(last.model.n_params)), last.model.activations, human_seconds(last.model.load_seconds),
             human_bytes(last.result.read_bandwidth));
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* sub = app.add_subcommand("bench", "How fast a model is here, and how near to the limit");
  auto f = std::make_shared<BenchFlags>();
  sub->add_option("MODEL,-m,--model", f->model, "The model; none: smollm2");       // in capitals: CLI11 2.4 takes a positional `model` for the --model of `bench serve`
  sub->add_option("-p,--n-prompt", f->n_prompt, "Prompt lengths to measure; 0: none")->delimiter(',')->capture_default_str()->check(CLI::Range(0, 1 << 24));
  sub->add_option("-n,--n-gen", f->n_answer, "Answer lengths to measure; 0: none")->delimiter(',')->capture_default_str()->check(CLI::Range(0, 1 << 24));
  sub->add_option("-d,--n-depth", f->depths, "Tokens already in the context")->delimiter(',')->capture_default_str()->check(CLI::Range(0, 1 << 24));
  sub->add_option("-b,--batch", f->batches, "Sequences at once")->delimiter(',')->capture_default_str()->check(CLI::Range(1, 4096));
  sub->add_option("-r,--repetitions", f->n_repetitions, "Repetitions of each test")->capture_default_str()->check(CLI::Range(1, 1000));
  sub->add_option("--temp,--temperature", f->sampling.temperature, "Answers are drawn at this temperature, as most who are served ask for; 0: always the likeliest token")->capture_default_str();
  sub->add_option("--top-k", f->sampling.top_k, "From the k likeliest tokens; 0: off")->capture_default_str();
  sub->add_option("--top-p", f->sampling.top_p, "From the likeliest tokens that make up this share; 1: off")->capture_default_str();
  sub->add_option("--min-p", f->sampling.min_p, "From tokens this likely relative to the likeliest; 0: off")->capture_default_str();
  sub->add_flag("--no-warmup", f->no_warmup, "Count the first run of a test, too, which finds caches and clocks cold");
  sub->add_flag("--csv", f->csv, "As CSV");
  sub->add_flag("--json", f->json, "As JSON, with every repetition");
  sub->add_option("--compare", f->compare, "Compare with the results of an earlier --json");
  sub->add_option("--shape", f->shape, fmt::format("Random weights in the shape of a known model: {}", fmt::join(known_shapes(), ", ")));
  sub->add_option("--layers", f->n_layers, "Only so many layers of that shape")->check(CLI::Range(1, 1000));
  sub->add_option("--format", f->formats, "Format of those weights: f32, f16, bf16, fp8, q8_0, q4_0, q4_1, q6_k, nvfp4, mxfp4")->delimiter(',')->capture_default_str();
  sub->add_option("--save", f->save, "Write that very model as a .gguf file, for another program to run");
  sub->add_flag("--kernels", f->kernels, "List the matrix kernels in the order they are tried");
  sub->add_flag("--profile", f->profile, "Time every operation (slows things down) and show where the time goes");
  sub->add_option("--trace", f->trace, "Write a trace for Chrome's about:tracing or Perfetto");
  sub->add_flag("--offline", f->offline, "Fetch nothing");
  add_model_flags(*sub, f->how);
  sub->remove_option(sub->get_option("--threads"));
  sub->add_option("-t,--threads", f->threads, "Thread counts to measure; none: one per core")->delimiter(',')->check(CLI::Range(0, 1024));
  sub->footer(R"(
A decoded token reads all weights once, so its limit is the memory's bandwidth: the last column says how much of it was reached.

Examples:
  ridge bench smollm2 -p 128,512 -n 64 -t 1,2
  ridge bench --shape qwen3-0.6b --format q8_0,q4_0,nvfp4 -d 0,4096
  ridge bench model.gguf --json > before.json; ridge bench model.gguf --compare before.json)");
  const CLI::App* serve = add_bench_serve(*sub);
  sub->callback([f, serve, &app] {
    if (!serve->parsed()) bench(*f, app.get_option("--quiet")->count() > 0);
  });
}

}  // namespace ridge
