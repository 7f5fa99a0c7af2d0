// `ridge bench serve`: how a server does under load. Asks any server that speaks OpenAI's API; flags are named as those of `vllm bench serve`.
#include <cmath>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "cli/bench_serve_client.h"
#include "cli/bench_serve_plot.h"
#include "cli/command.h"
#include "cli/progress.h"

namespace ridge {
namespace {

using namespace load;

struct BenchServeFlags {
  ClientOptions client;
  RequestFlags request;
  WorkloadFlags workload;
  Targets targets;
  std::string host = "127.0.0.1", backend = "openai", plot, save, extra_body;
  int port = 8080, n_warmups = 1;
  std::vector<std::string> rates, goodput, headers;
  std::vector<int> concurrencies;
  double burstiness = 1, temperature = 0;
  bool json = false, insecure = false;
};

double to_rate(const std::string& text) {
  if (text == "inf") return INFINITY;
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size() || !(rate > 0)) fail("--request-rate {}: a number of requests per second above 0, or inf", text);
  return rate;
}

void add_goodput(const std::vector<std::string>& words, Targets& targets) {
  for (const std::string& word : words) {
    const size_t colon = word.find(':');
    const std::string name = word.substr(0, colon);
    double* target = name == "ttft" ? &targets.ttft_ms : name == "tpot" ? &targets.tpot_ms : name == "e2el" ? &targets.e2el_ms : nullptr;
    char* end = nullptr;
    const double value = colon == std::string::npos ? 0 : std::strtod(word.c_str() + colon + 1, &end);
    if (!target || !(value > 0) || *end) fail("--goodput {}: write ttft:MS, tpot:MS or e2el:MS", word);
    *target = value;
  }
}

std::string served_model(const ClientOptions& client) {
  const Json models = get_json(client, "/v1/models");
  if (!models.is_object() || !models.contains("data") || !models["data"].is_array() || models["data"].empty() || !models["data"][0].contains("id") || !models["data"][0]["id"].is_string())
    fail("{}/v1/models names no model: give --model", client.base_url);
  return models["data"][0]["id"].get<std::string>();
}

void complete(BenchServeFlags& f) {
  if (f.client.base_url.empty()) f.client.base_url = fmt::format("http://{}:{}", f.host, f.port);
  while (f.client.base_url.ends_with('/')) f.client.base_url.pop_back();
  if (f.client.base_url.ends_with("/v1")) f.client.base_url.resize(f.client.base_url.size() - 3);      // as OpenAI's clients have it
  f.client.verify_tls = !f.insecure;
  for (const std::string& header : f.headers) {
    const size_t split = header.find('=');
    if (split == std::string::npos) fail("--header {}: write NAME=VALUE", header);
    f.client.headers.push_back({header.substr(0, split), header.substr(split + 1)});
  }
  f.request.chat = f.backend == "openai-chat" || f.request.endpoint.find("chat") != std::string::npos;
  if (f.request.chat && f.request.endpoint == "/v1/completions") f.request.endpoint = "/v1/chat/completions";
  f.request.extra["temperature"] = f.temperature;
  if (!f.extra_body.empty()) {
    const Json extra = parse_json(f.extra_body, "--extra-body");
    if (!extra.is_object()) fail("--extra-body must be a JSON object");
    f.request.extra.update(extra);
  }
  if (f.request.model.empty()) f.request.model = served_model(f.client);
}

struct Load { double rate; int concurrency; };

// One point for every rate, or else for every concurrency; a trace with times of its own is one point.
std::vector<Load> loads_of(const BenchServeFlags& f) {
  std::vector<Load> loads;
  if (f.rates.size() && f.concurrencies.size() > 1) fail("give several rates or several concurrencies, not both");
  const int limit = f.concurrencies.empty() ? 0 : f.concurrencies[0];
  for (const std::string& rate : f.rates) loads.push_back({to_rate(rate), limit});
  if (f.rates.empty())
    for (const int n : f.concurrencies) loads.push_back({0, n});
  if (loads.empty()) loads.push_back(f.workload.dataset == "trace" ? Load{0, 0} : Load{0, 8});
  return loads;
}

LoadPoint measure(const BenchServeFlags& f, const Load& load, size_t index) {
  WorkloadFlags workload = f.workload;
  workload.seed += 1000003 * index;                    // other prompts at every point: what one left in the server's cache must not help the next
  std::vector<Conversation> all = make_workload(workload);
  const bool closed = load.rate == 0 && load.concurrency > 0;
  if (std::isinf(load.rate)) for (Conversation& c : all) c.at = 0;
  else if (load.rate > 0) set_arrivals(all, load.rate, f.burstiness, workload.seed);
  LoadPoint point{.rate = load.rate, .concurrency = load.concurrency};
  size_t n_turns = 0;
  for (const Conversation& c : all) n_turns += c.turns.size();
  Progress progress("bench serve, " + point.label());
  point.outcomes = run_load(f.client, f.request, all, closed, load.concurrency, point.seconds, [&](size_t n) { progress.update(double(n) / double(n_turns), fmt::format("{} of {} requests", n, n_turns)); });
  return point;
}

void warm_up(const BenchServeFlags& f) {
  if (f.n_warmups <= 0) return;
  WorkloadFlags workload = f.workload;
  workload.seed ^= 0x5eed;
  workload.n_prompts = f.n_warmups;
  if (workload.dataset != "trace" && workload.dataset != "sharegpt") workload.n_output = std::min(workload.n_output, 8), workload.n_prefix = 0, workload.n_turns = 1;
  double seconds = 0;
  const auto outcomes = run_load(f.client, f.request, make_workload(workload), true, 1, seconds, [](size_t) {});
  for (const Outcome& o : outcomes)
    if (!o.error.empty()) fail("{}{} does not answer: {}", f.client.base_url, f.request.endpoint, o.error);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text) || !file.flush()) fail("cannot write {}", path);
}

void bench_serve(BenchServeFlags& f) {
  const std::vector<Load> loads = loads_of(f);
  add_goodput(f.goodput, f.targets);
  make_workload(f.workload);                           // a mistake in the flags is said before the server is asked
  complete(f);
  warm_up(f);
  std::vector<LoadPoint> points;
  Json results = Json::array();
  for (const Load& load : loads) {
    points.push_back(measure(f, load, points.size()));
    results.push_back(to_json(points.back(), f.targets));
    if (!f.json) fmt::print("{}\n", report(points.back(), f.targets));
    std::fflush(stdout);
  }
  const Json all = {{"ridge", RIDGE_VERSION}, {"base_url", f.client.base_url}, {"model_id", f.request.model}, {"backend", f.request.chat ? "openai-chat" : "openai"}, {"dataset_name", f.workload.dataset},
                    {"num_prompts", f.workload.n_prompts}, {"random_input_len", f.workload.n_input}, {"random_prefix_len", f.workload.n_prefix}, {"random_output_len", f.workload.n_output}, {"seed", f.workload.seed},
                    {"results", results}};
  if (f.json) fmt::print("{}\n", all.dump(1));
  else if (points.size() > 1) fmt::print("{}", summary(points, f.targets).aligned());
  if (!f.save.empty()) write_file(f.save, all.dump(1) + "\n");
  if (!f.plot.empty()) write_file(f.plot, goodput_svg(points, f.targets, fmt::format("Goodput of {}", f.request.model)));
}

}  // namespace

CLI::App* add_bench_serve(CLI::App& bench) {
  auto* sub = bench.add_subcommand("serve", "How a server does under load: latencies, throughput and goodput");
  auto f = std::make_shared<BenchServeFlags>();
  sub->add_option("--base-url", f->client.base_url, "The server, e.g. http://127.0.0.1:8080");
  sub->add_option("--host", f->host, "Instead of --base-url")->capture_default_str();
  sub->add_option("--port", f->port, "Instead of --base-url")->capture_default_str()->check(CLI::Range(1, 65535));
  sub->add_option("-m,--model", f->request.model, "The model to ask for; none: the first that the server names");
  sub->add_option("--api-key", f->client.api_key, "Sent as a bearer token")->envname("OPENAI_API_KEY");
  sub->add_option("--header", f->headers, "More headers, NAME=VALUE");
  sub->add_option("--backend", f->backend, "Completions or chats")->capture_default_str()->check(CLI::IsMember({"openai", "openai-chat"}));
  sub->add_option("--endpoint", f->request.endpoint, "The path to ask")->capture_default_str();
  sub->add_option("--dataset-name", f->workload.dataset, "Where prompts come from: random, multi-turn, sharegpt or trace (JSON lines)")->capture_default_str()->check(CLI::IsMember({"random", "multi-turn", "sharegpt", "trace"}));
  sub->add_option("--dataset-path", f->workload.path, "The file of sharegpt or trace");
  sub->add_option("-n,--num-prompts", f->workload.n_prompts, "Requests (or conversations) at each load")->capture_default_str()->check(CLI::Range(1, 10000000));
  sub->add_option("--random-input-len", f->workload.n_input, "Words or token ids of a random prompt, after the shared prefix")->capture_default_str()->check(CLI::Range(1, 1 << 24));
  auto* output = sub->add_option("--max-tokens,--output-len,--random-output-len", f->workload.n_output, "Tokens of an answer")->capture_default_str()->check(CLI::Range(1, 1 << 24));
  sub->add_option("--shared-prefix,--random-prefix-len", f->workload.n_prefix, "Words or token ids that all prompts begin with")->capture_default_str()->check(CLI::Range(0, 1 << 24));
  sub->add_option("--random-range-ratio", f->workload.range_ratio, "Lengths vary by this share, up and down")->capture_default_str()->check(CLI::Range(0.0, 1.0));
  sub->add_option("--random-vocab-size", f->workload.n_vocab, "Prompts are token ids below this instead of words, so that lengths are exact")->check(CLI::Range(1, 1 << 24));
  sub->add_option("--turns", f->workload.n_turns, "Turns of a multi-turn conversation; each sends all that was said before")->capture_default_str()->check(CLI::Range(1, 1000));
  sub->add_option("--request-rate", f->rates, "Open loop: requests per second, arriving at random; several (4,8,16) are measured one after the other; inf: all at once")->delimiter(',');
  sub->add_option("--burstiness", f->burstiness, "1: Poisson; less: in bunches; more: evenly")->capture_default_str()->check(CLI::Range(0.01, 1000.0));
  sub->add_option("--concurrency,--max-concurrency", f->concurrencies, "Closed loop: so many at once, also several (1,8,32); with --request-rate: at most so many; neither: 8 at once")->delimiter(',')->check(CLI::Range(1, 1000000));
  sub->add_option("--target-ttft-ms", f->targets.ttft_ms, "A request is good when its first token came within this")->check(CLI::PositiveNumber);
  sub->add_option("--target-tpot-ms", f->targets.tpot_ms, "... and its tokens came no slower than this")->check(CLI::PositiveNumber);
  sub->add_option("--goodput", f->goodput, "The same as ttft:MS tpot:MS e2el:MS");
  sub->add_flag("--ignore-eos,!--no-ignore-eos", f->request.ignore_eos, "Answers have their full length, whatever the model says (the default)");
  sub->add_option("--temperature", f->temperature, "Of every request")->capture_default_str();
  sub->add_option("--extra-body", f->extra_body, "More fields of every request, as JSON");
  sub->add_option("--num-warmups", f->n_warmups, "Requests before measuring")->capture_default_str()->check(CLI::Range(0, 100000));
  sub->add_option("--timeout", f->client.timeout_s, "Seconds without a byte after which a request has failed")->capture_default_str()->check(CLI::Range(1.0, 86400.0));
  sub->add_flag("--insecure", f->insecure, "Take any TLS certificate");
  sub->add_option("--seed", f->workload.seed, "Of prompts and arrivals")->capture_default_str();
  sub->add_flag("--json", f->json, "As JSON, with the names of vLLM's benchmark");
  sub->add_option("--save-result,--result-filename", f->save, "Write that JSON to a file");
  sub->add_option("--plot", f->plot, "Write goodput over load as an .svg file");
  sub->footer(R"(
Latencies of an open loop count from when a request was due, so that a server that falls behind cannot hide it.

Examples:
  ridge bench serve --concurrency 8 --random-input-len 128 --shared-prefix 384 --max-tokens 128
  ridge bench serve --request-rate 1,2,4,8 --target-ttft-ms 500 --target-tpot-ms 50 --plot goodput.svg
  ridge bench serve --backend openai-chat --dataset-name sharegpt --dataset-path ShareGPT_V3.json -n 200 --request-rate 4)");
  sub->callback([f, output] {
    f->workload.output_given = output->count() > 0;
    bench_serve(*f);
  });
  return sub;
}

}  // namespace ridge
