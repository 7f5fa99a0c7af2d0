// `ridge serve [MODEL]`: listens at once, loads the model, answers until it is told to stop.
//
// What lives how long: HTTP is made first, so that a taken port is found at once, and it ends first, with the answers under way; the engine outlives it.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "cli/bandwidth.h"
#include "cli/command.h"
#include "cli/loaded_model.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "cli/serve_flags.h"
#include "cli/stop_signals.h"
#include "engine/device.h"
#include "engine/generation_defaults.h"
#include "engine/tokenizer_of.h"
#include "server/metrics.h"
#include "server/page.h"
#include "server/routes.h"
#include "server/service.h"

namespace ridge {
namespace {

// A model that is being served. Members are destroyed from the last to the first: the thread before its engine, the engine before the files.
struct Serving {
  Checkpoint checkpoint;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<GrammarCompiler> grammars;
  std::unique_ptr<EngineThread> thread;
  double bandwidth = 0, load_seconds = 0;
};

int64_t bytes_of_weights(const Checkpoint& checkpoint) {
  int64_t n = 0;
  if (checkpoint.weights)
    for (const TensorInfo& tensor : checkpoint.weights->tensors()) n += int64_t(tensor.bytes);
  return n;
}

std::unique_ptr<Serving> load(const ServeFlags& f) {
  const auto start = std::chrono::steady_clock::now();
  auto s = std::make_unique<Serving>();
  s->checkpoint = open_checkpoint(resolve_model(f.model, f.offline));
  const Checkpoint& c = s->checkpoint;
  s->tokenizer = make_tokenizer(c);
  s->chat_template = std::make_unique<ChatTemplate>(ChatFormat{chat_template_source(f, c.chat_template), c.bos_token, c.eos_token}, c.name + ": chat template");
  EngineOptions options = serving_options(f, bytes_of_weights(c));
  {
    Progress progress("loading " + c.name);
    options.progress = [&](double share, const std::string& what) { progress.update(share, what); };
    s->engine = std::make_unique<Engine>(c, options);
  }
  for (const AdapterFlag& adapter : adapters_of(f)) s->engine->load_adapter(adapter.name, adapter.folder);
  const int n_threads = f.how.n_threads > 0 ? f.how.n_threads : this_machine().n_usable;
  s->bandwidth = s->engine->options().device == "cuda" ? measure_read_bandwidth_of("cuda", 0, 0, 0) : recent_read_bandwidth(n_threads);
  s->grammars = std::make_unique<GrammarCompiler>(*s->tokenizer, s->engine->model().n_vocab, c.eos_ids);
  s->thread = std::make_unique<EngineThread>(*s->engine, AdmissionLimits{f.max_queue, f.max_per_user});
  s->load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return s;
}

std::shared_ptr<Service> make_service(const ServeFlags& f, Serving& s, const std::shared_ptr<Metrics>& metrics) {
  const Checkpoint& c = s.checkpoint;
  ServiceOptions options{.model_names = f.names.empty() ? std::vector<std::string>{c.name} : f.names};
  if (f.generation_config == "auto") options.defaults = defaults_from(c.generation_config);
  options.template_variables = template_variables(f);
  options.max_requests = f.max_queue;
  options.split_reasoning = f.reasoning_format != "none";
  options.may_load_adapters = f.may_load_adapters;
  options.version = RIDGE_VERSION;
  const auto format = f.tool_parser == "auto" ? AnswerFormat::for_template(s.chat_template->source()) : AnswerFormat::named(f.tool_parser);
  auto service = std::make_shared<Service>(Service{c, *s.tokenizer, *s.chat_template, format, *s.grammars, *s.thread, *s.engine, std::move(options)});
  for (const AdapterInfo& adapter : s.engine->adapters()) service->adapters->add(adapter.name);
  service->on_finished = [metrics](const RequestTiming& timing, std::string_view finish) { metrics->on_finished(timing, finish); };
  service->on_tokens = [metrics](const Event& event, TimePoint came) { metrics->on_tokens(event, came); };
  return service;
}

void add_page_and_figures(Routes& routes, HttpOptions& options, const std::shared_ptr<Metrics>& metrics) {
  for (const PageFile& file : page_files()) {
    options.open_paths.push_back(file.path);           // the page itself asks for the key
    options.quiet_paths.push_back(file.path);
    routes.add("GET", file.path, [&file](const HttpRequest& request, std::shared_ptr<HttpReply> reply) { send_page_file(file, request, *reply); });
  }
  // The figures come from the engine's thread after the step that runs; their text is made on the connection's.
  routes.add("GET", "/metrics", [metrics](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
    metrics->look([metrics, reply](const LiveFigures& figures) {
      reply->post([metrics, reply, figures] { reply->send(200, "text/plain; version=0.0.4; charset=utf-8", metrics->text(figures)); });
    });
  });
  routes.add("GET", "/live", [metrics](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
    metrics->look([metrics, reply](const LiveFigures& figures) {
      reply->post([metrics, reply, figures] { reply->send(200, "application/json", metrics->live(figures).dump(), {{"Cache-Control", "no-store"}}); });
    });
  });
}

std::string address(const ServeFlags& f, int port) {
  const std::string host = f.host == "0.0.0.0" || f.host == "::" || f.host.empty() ? "localhost" : f.host.find(':') != std::string::npos ? "[" + f.host + "]" : f.host;
  return fmt::format("{}://{}:{}", f.certificate.empty() ? "http" : "https", host, port);
}

// Answers under way may end; a second signal ends at once.
void stop_in_order(HttpServer& http, EngineThread& engine, StopSignals& signals, std::chrono::seconds at_most, bool quiet) {
  if (!quiet) fmt::print(stderr, "Stopping: answers under way may take {} seconds (again: at once).\n", at_most.count());
  std::atomic<bool> stopped{false};
  std::jthread stopping([&] {
    http.stop(at_most);
    engine.drain(std::chrono::milliseconds(100));
    stopped = true;
  });
  while (!stopped)
    if (signals.wait(std::chrono::milliseconds(20)) && !stopped) {
      fmt::print(stderr, "Stopped at once.\n");
      std::_Exit(130);
    }
}

void serve(const ServeFlags& f, bool quiet) {
  auto metrics = std::make_shared<Metrics>(f.metrics_names == "vllm");
  Routes routes;
  HttpOptions options = http_options(f);
  options.error_body = Routes::error_body;
  if (options.log_json) options.log_sink = [](const std::string& line) { std::fputs((line + "\n").c_str(), stderr); };
  add_page_and_figures(routes, options, metrics);
  std::unique_ptr<Serving> serving;                    // outlives HTTP
  HttpServer http(std::move(options), [&routes](const HttpRequest& request, std::shared_ptr<HttpReply> reply) { routes.handle(request, std::move(reply)); });
  metrics->watch_connections([&http] { return http.n_connections(); });
  http.start();
  const std::string where = address(f, http.port());
  if (!quiet) fmt::print(stderr, "Listening at {}; loading the model.\n", where);

  serving = load(f);
  Serving& s = *serving;
  const auto service = make_service(f, s, metrics);
  const EngineOptions& made = s.engine->options();
  metrics->watch(std::make_shared<LiveFiguresSource>(*s.thread, s.bandwidth),
                 {.model = service->name(), .version = RIDGE_VERSION, .device = s.engine->backend().name(), .max_context = s.engine->max_context(), .max_seqs = made.max_seqs,
                  .page_size = made.page_size, .kv_bytes = s.engine->kv().n_bytes()});
  StopSignals signals;
  routes.open(service);
  fmt::print("Serving {} at {} (page, OpenAI API)\n", service->name(), where);
  std::fflush(stdout);
  if (!quiet)
    fmt::print(stderr, "{}; loaded in {}; context {}, {} requests at once, {} for KV.\n", s.engine->backend().name(), human_seconds(s.load_seconds), s.engine->max_context(), made.max_seqs,
               human_bytes(double(s.engine->kv().n_bytes())));

  while (!signals.wait(std::chrono::milliseconds(200)) && s.thread->fault().empty()) {}
  const std::string fault = s.thread->fault();
  stop_in_order(http, *s.thread, signals, fault.empty() ? std::chrono::seconds(f.stop_timeout) : std::chrono::seconds(2), quiet);
  metrics->watch(nullptr, {});
  routes.close();
  if (!fault.empty()) fail("the engine has failed: {}", fault);
}

}  // namespace

void add_serve(CLI::App& app) {
  auto* sub = app.add_subcommand("serve", "Serve a model to many users: the OpenAI API, and a page to chat");
  auto f = std::make_shared<ServeFlags>();
  add_serve_flags(*sub, *f);
  sub->footer(R"(
Examples:
  ridge serve                                        smollm2 at http://127.0.0.1:8080
  ridge serve qwen.gguf --port 8000 --max-model-len 8192
  ridge serve Qwen/Qwen3-0.6B --host 0.0.0.0 --api-key secret --served-model-name qwen
  ridge serve model.gguf --max-num-seqs 64 --target-ttft-ms 500 --target-tpot-ms 50
  curl http://127.0.0.1:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello!"}]}')");
  sub->callback([f, &app] { serve(*f, app.get_option("--quiet")->count() > 0); });
}

}  // namespace ridge
