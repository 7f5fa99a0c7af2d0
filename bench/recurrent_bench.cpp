// Decode speed of recurrent layers at the shapes of Granite 4.0 (Mamba-2) and Qwen3-Next (gated DeltaNet): a stack of such layers with random weights, far larger
// than the caches, decodes tokens at different places of a page. Prints the time and bytes of a layer by op (weights, state and tail as the ops count them) and
// the share of the read bandwidth measured in the same run.
//
//   bench_recurrent --format nvfp4 --threads 2 --layers 8
#include <CLI/CLI.hpp>
#include <cmath>
#include <ctime>
#include <map>
#include <random>
#include <thread>

#include "clock.h"
#include "backend/ledger.h"
#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "files/checkpoint.h"
#include "kv/cache.h"
#include "model/model.h"

using namespace ridge;

namespace {

BenchClock timer;

// Tensors of the shapes asked for, all rows alike: speed does not depend on the numbers.
class AnyWeights : public WeightFile {
 public:
  explicit AnyWeights(FormatId f) : format_(f) {}
  void add(const std::string& name, int64_t rows, int64_t cols, bool plain = false) {
    const FormatId f = plain ? FormatId::f32 : format_;
    infos_.push_back({.name = name, .stored_name = name, .format = f, .shape = {rows, cols}, .bytes = uint64_t(rows * row_bytes(f, cols)), .file = "(random)"});
    std::vector<float> values(static_cast<size_t>(cols));
    std::mt19937 rng(7);
    std::normal_distribution<float> normal(0, plain ? 0.1f : 1.0f / std::sqrt(float(cols)));
    for (float& v : values) v = normal(rng);
    std::vector<std::byte>& row = rows_[name];
    row.resize(size_t(row_bytes(f, cols)));
    format(f).encode_row(row.data(), values.data(), cols);
  }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  bool has(std::string_view name) const override { return rows_.find(name) != rows_.end(); }
  StoredWeight get(std::string_view name) const override {
    for (const TensorInfo& info : infos_)
      if (info.name == name) {
        const auto& row = rows_.find(name)->second;
        Tensor codes = view(const_cast<std::byte*>(row.data()), info.format, info.shape[0], info.shape[1]);
        codes.stride = 0;
        return {.name = info.name, .format = info.format, .rows = info.shape[0], .cols = info.shape[1], .codes = codes};
      }
    fail("no tensor {}", name);
  }
  std::string container() const override { return "random numbers"; }

 private:
  FormatId format_;
  std::vector<TensorInfo> infos_;
  std::map<std::string, std::vector<std::byte>, std::less<>> rows_;
};

// A ledger whose seconds are ours.
class Times : public Ledger {
 public:
  explicit Times(Backend& inner) : Ledger(inner, Mode::time) {}
  void run(const Op& op) override {
    const double begin = timer.seconds();
    Ledger::run(op);
    seconds[std::string(name_of(op))] += timer.seconds() - begin;
  }
  std::map<std::string, double> seconds;
};

Checkpoint mamba2_layers(FormatId f, int n_layers) {
  const int64_t d = 4096, n_heads = 128, d_state = 128, d_inner = 8192, d_conv = d_inner + 2 * d_state;
  auto weights = std::make_unique<AnyWeights>(f);
  weights->add("backbone.embeddings.weight", 256, d, true);
  weights->add("backbone.norm_f.weight", 1, d, true);
  weights->add("lm_head.weight", 256, d);
  for (int i = 0; i < n_layers; i++) {
    const std::string p = fmt::format("backbone.layers.{}.", i), m = p + "mixer.";
    weights->add(p + "norm.weight", 1, d, true);
    weights->add(m + "in_proj.weight", d_inner + d_conv + n_heads, d);
    weights->add(m + "out_proj.weight", d, d_inner);
    weights->add(m + "conv1d.weight", d_conv, 4, true);
    for (const auto& [name, n] : {std::pair{"conv1d.bias", d_conv}, {"dt_bias", n_heads}, {"A_log", n_heads}, {"D", n_heads}, {"norm.weight",
                                                                                                                               d_inner}}) weights->add(m + name, 1, n, true);
  }
  Checkpoint checkpoint{.path = "", .name = "granite-4's Mamba-2"};
  checkpoint.config = {{"model_type", "mamba2"}, {"vocab_size", 256}, {"hidden_size", d}, {"num_hidden_layers", n_layers}, {"num_heads", n_heads}, {"head_dim", 64},
                       {"n_groups", 1}, {"state_size", d_state}, {"tie_word_embeddings", false}};
  checkpoint.weights = std::move(weights);
  return checkpoint;
}

// Qwen3.5's family with the narrowest MLP there can be, so that the layers are DeltaNet almost alone.
Checkpoint delta_layers(FormatId f, int n_layers) {
  const int64_t d = 2048, d_keys = 2048, d_values = 4096, n_heads = 32, d_ff = 64;
  auto weights = std::make_unique<AnyWeights>(f);
  weights->add("model.embed_tokens.weight", 256, d, true);
  weights->add("model.norm.weight", 1, d, true);
  weights->add("lm_head.weight", 256, d);
  Json types = Json::array();
  for (int i = 0; i < n_layers; i++) {
    const std::string p = fmt::format("model.layers.{}.", i), m = p + "linear_attn.";
    types.push_back("linear_attention");
    weights->add(m + "in_proj_qkv.weight", 2 * d_keys + d_values, d);
    weights->add(m + "in_proj_z.weight", d_values, d);
    weights->add(m + "in_proj_b.weight", n_heads, d);
    weights->add(m + "in_proj_a.weight", n_heads, d);
    weights->add(m + "out_proj.weight", d, d_values);
    weights->add(m + "conv1d.weight", 2 * d_keys + d_values, 4, true);
    for (const auto& [name, n] : {std::pair<std::string, int64_t>{m + "dt_bias", n_heads}, {m + "A_log", n_heads}, {m + "norm.weight", 128},
                                  {p + "input_layernorm.weight", d},
                                  {p + "post_attention_layernorm.weight", d}})
      weights->add(name, 1, n, true);
    for (const char* name : {"mlp.gate_proj.weight", "mlp.up_proj.weight"}) weights->add(p + name, d_ff, d);
    weights->add(p + "mlp.down_proj.weight", d, d_ff);
  }
  Checkpoint checkpoint{.path = "", .name = "qwen3-next's gated DeltaNet"};
  checkpoint.config = {{"model_type", "qwen3_5_text"}, {"vocab_size", 256}, {"hidden_size", d}, {"num_hidden_layers", n_layers}, {"num_attention_heads", 16},
                       {"intermediate_size", d_ff},
                       {"layer_types", types}, {"tie_word_embeddings", false}};
  checkpoint.weights = std::move(weights);
  return checkpoint;
}

void measure(const Checkpoint& checkpoint, int n_threads, int n_layers, double bandwidth) {
  const auto cpu = make_cpu_backend({.n_threads = n_threads});
  const auto model = load_model(checkpoint, *cpu, {.activations = FormatId::i8});            // as in a whole model of this size
  KvCache cache(model->kv_specs, *cpu, {.page_size = 64, .max_bytes = int64_t{4} << 30, .max_context = 1024, .max_seqs = 1, .max_step_tokens = 64});
  Workspace workspace(*model, *cpu, 64, 1);
  Step step({.max_tokens = 64, .max_seqs = 1, .max_logits = 1, .max_pages = 64, .n_groups = cache.n_groups(), .n_ropes = static_cast<int>(model->ropes.size()),
             .n_freqs = model->n_freqs(), .max_rope_rows = 1});
  Track track;
  const auto run = [&](Backend& backend, int n) {
    if (!cache.reserve(track, track.n_computed + n)) fail("no pages");
    step.clear();
    step.set_page_size(64);
    StepSeq seq{.slot = 0, .first_row = 0, .n_rows = n, .n_context = track.n_computed + n, .rope_row = 0, .first_page = {}};
    for (size_t g = 0; g < track.pages.size(); ++g) seq.first_page[g] = step.add_pages(track.pages[g]);
    seq.rope_row = step.add_rope_row();
    model->write_rope_row(step, seq.rope_row, 0);
    step.add_seq(seq);
    for (int i = 0; i < n; ++i) step.add_token(5, track.n_computed + i, 0, i + 1 == n);
    forward(*model, backend, step, workspace, cache.refs());
    track.n_computed += n;
    cache.release_unseen(track, track.n_computed);
  };
  run(*cpu, 64);
  run(*cpu, 64);
  Ledger count(*cpu, Ledger::Mode::count);
  Times time(*cpu);
  double best = 1e30, sum = 0;
  for (int i = 0; i < 64; ++i) {             // a whole page: one token of these makes a checkpoint, the tail grows from 0 to 63
    const double begin = timer.seconds();
    run(count, 1);
    const double s = timer.seconds() - begin;
    best = std::min(best, s);
    sum += s;
  }
  const double bytes = double(count.total().weight_bytes + count.total().kv_bytes) / 64;
  fmt::print("{}: {:.1f} MB a layer and token ({:.1f} of KV); {:.3f} ms a layer on average: {:.1f} GB/s, {:.0f} % of {:.1f} GB/s; the best token {:.3f} ms\n", checkpoint.name,
             bytes / n_layers / 1e6, double(count.total().kv_bytes) / 64 / n_layers / 1e6, sum / 64 / n_layers * 1e3, bytes / (sum / 64) / 1e9,
                 100 * bytes / (sum / 64) / bandwidth,
             bandwidth / 1e9, best / n_layers * 1e3);
  for (int i = 0; i < 64; ++i) run(time, 1);
  for (const auto& [name, e] : time.entries())
    fmt::print("  {:16} {:8.3f} ms {:9.3f} MB {:7.1f} GB/s\n", name, time.seconds[name] / 64 / n_layers * 1e3, double(e.traffic.bytes()) / 64 / n_layers / 1e6,
               double(e.traffic.bytes()) / time.seconds[name] / 1e9);
}

}  // namespace

int main(int argc, char** argv) try {
  std::string format_name = "nvfp4";
  int n_threads = static_cast<int>(std::thread::hardware_concurrency()), n_layers = 8;
  CLI::App app("decode speed of recurrent layers");
  app.add_option("--format", format_name);
  app.add_option("--threads", n_threads);
  app.add_option("--layers", n_layers);
  app.add_flag("--cpu-time", timer.cpu_time, "of one thread, on a busy machine");
  CLI11_PARSE(app, argc, argv);
  if (timer.cpu_time) n_threads = 1;
  const std::optional<FormatId> f = find_format(format_name);
  if (!f) fail("--format {}: there is no such format", format_name);
  const double bandwidth = timer.cpu_time ? timer.read_bandwidth() : measure_read_bandwidth(n_threads);
  measure(mamba2_layers(*f, n_layers), n_threads, n_layers, bandwidth);
  measure(delta_layers(*f, n_layers), n_threads, n_layers, bandwidth);
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
