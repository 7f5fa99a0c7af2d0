#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <atomic>
#include <mutex>
#include <sstream>
#include <unordered_map>
#include <utility>

namespace ridge {
namespace {

namespace prom = prometheus;
using Seconds = std::chrono::duration<double>;

const prom::Histogram::BucketBoundaries kFirstToken{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160};
const prom::Histogram::BucketBoundaries kBetween{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5, 10};
const prom::Histogram::BucketBoundaries kWhole{0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920};

// Ours and vLLM's name of the same figure.
constexpr std::pair<std::string_view, std::string_view> kVllmNames[] = {
    {"ridge_requests_total", "vllm:request_success_total"},
    {"ridge_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"ridge_cached_tokens_total", "vllm:prompt_tokens_cached_total"},
    {"ridge_generated_tokens_total", "vllm:generation_tokens_total"},
    {"ridge_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"ridge_inter_token_seconds", "vllm:inter_token_latency_seconds"},
    {"ridge_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"},
    {"ridge_request_seconds", "vllm:e2e_request_latency_seconds"},
    {"ridge_queue_seconds", "vllm:request_queue_time_seconds"},
    {"ridge_prefill_seconds", "vllm:request_prefill_time_seconds"},
    {"ridge_decode_seconds", "vllm:request_decode_time_seconds"},
    {"ridge_requests_running", "vllm:num_requests_running"},
    {"ridge_requests_waiting", "vllm:num_requests_waiting"},
    {"ridge_kv_used_share", "vllm:kv_cache_usage_perc"},
    {"ridge_prefix_lookup_tokens_total", "vllm:prefix_cache_queries_total"},
    {"ridge_prefix_hit_tokens_total", "vllm:prefix_cache_hits_total"},
    {"ridge_preemptions_total", "vllm:num_preemptions_total"},
};

using Labels = std::vector<prom::ClientMetric::Label>;
struct Figure { Labels labels; double value; };

prom::MetricFamily family(const char* name, const char* help, prom::MetricType type, std::vector<Figure> figures) {
  prom::MetricFamily made{name, help, type, {}};
  for (Figure& figure : figures) {
    prom::ClientMetric metric;
    metric.label = std::move(figure.labels);
    (type == prom::MetricType::Counter ? metric.counter.value : metric.gauge.value) = figure.value;
    made.metric.push_back(std::move(metric));
  }
  return made;
}

prom::MetricFamily counter(const char* name, const char* help, double value) { return family(name, help, prom::MetricType::Counter, {{{}, value}}); }
prom::MetricFamily gauge(const char* name, const char* help, double value) { return family(name, help, prom::MetricType::Gauge, {{{}, value}}); }

}  // namespace

struct Metrics::State {
  explicit State(bool with_vllm_names) : vllm_names(with_vllm_names) {}
  bool vllm_names;
  prom::Registry registry;
  prom::Family<prom::Counter>& requests = prom::BuildCounter().Name("ridge_requests_total").Help("Requests that ended, by how").Register(registry);
  prom::Family<prom::Counter>& refusals = prom::BuildCounter().Name("ridge_refused_total").Help("Requests that were refused, by HTTP status").Register(registry);
  prom::Counter& prompt_tokens = add_counter("ridge_prompt_tokens_total", "Tokens of prompts, cached ones too");
  prom::Counter& cached_tokens = add_counter("ridge_cached_tokens_total", "Tokens of prompts found in the prefix cache");
  prom::Counter& generated_tokens = add_counter("ridge_generated_tokens_total", "Tokens generated");
  prom::Histogram& first_token = add_histogram("ridge_time_to_first_token_seconds", "From a request's arrival to its first token", kFirstToken);
  prom::Histogram& between = add_histogram("ridge_inter_token_seconds", "Between two tokens of one answer", kBetween);
  prom::Histogram& per_token = add_histogram("ridge_time_per_output_token_seconds", "Mean time per token of an answer after its first", kBetween);
  prom::Histogram& whole = add_histogram("ridge_request_seconds", "From a request's arrival to its end", kWhole);
  prom::Histogram& queue = add_histogram("ridge_queue_seconds", "From a request's arrival to its first step", kWhole);
  prom::Histogram& prefill = add_histogram("ridge_prefill_seconds", "From a request's first step to its first token", kWhole);
  prom::Histogram& decode = add_histogram("ridge_decode_seconds", "From a request's first token to its end", kWhole);
  std::atomic<int64_t> n_requests{0}, n_prompt{0}, n_cached{0}, n_generated{0};
  TimePoint start = std::chrono::steady_clock::now();

  std::mutex mutex;                          // of what follows
  std::unordered_map<uint64_t, TimePoint> last_token;            // of answers that are being written
  std::shared_ptr<LiveFiguresSource> source;
  About about;
  std::function<int()> n_connections;

  prom::Counter& add_counter(const char* name, const char* help) { return prom::BuildCounter().Name(name).Help(help).Register(registry).Add({}); }
  prom::Histogram& add_histogram(const char* name, const char* help, const prom::Histogram::BucketBoundaries& buckets) {
    return prom::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }
  void add_process(std::vector<prom::MetricFamily>& all);
  void add_engine(std::vector<prom::MetricFamily>& all, const LiveFigures& f, double bandwidth);
};

Metrics::Metrics(bool vllm_names) : state_(std::make_unique<State>(vllm_names)) {}
Metrics::~Metrics() = default;

void Metrics::on_finished(const RequestTiming& t, std::string_view finish) {
  State& s = *state_;
  s.requests.Add({{"finish", std::string(finish)}}).Increment();
  s.n_requests++;
  s.n_prompt += t.n_prompt;
  s.n_cached += t.n_cached;
  s.prompt_tokens.Increment(t.n_prompt);
  s.cached_tokens.Increment(t.n_cached);
  const TimePoint never{};
  if (t.finished == never || t.arrived == never) return;
  s.whole.Observe(Seconds(t.finished - t.arrived).count());
  if (t.scheduled != never) s.queue.Observe(Seconds(t.scheduled - t.arrived).count());
  if (t.first_token == never) return;
  s.first_token.Observe(Seconds(t.first_token - t.arrived).count());
  s.decode.Observe(Seconds(t.finished - t.first_token).count());
  if (t.scheduled != never) s.prefill.Observe(Seconds(t.first_token - t.scheduled).count());
  if (t.n_generated > 1) s.per_token.Observe(Seconds(t.finished - t.first_token).count() / (t.n_generated - 1));
}

void Metrics::on_tokens(const Event& event, TimePoint came) {
  State& s = *state_;
  const size_t n = event.sampled.size();
  if (n > 0) s.n_generated += int64_t(n), s.generated_tokens.Increment(double(n));
  double seconds = -1;
  {
    const std::lock_guard lock(s.mutex);
    const auto [at, first] = s.last_token.try_emplace(event.id, came);
    if (!first && n > 0) seconds = Seconds(came - std::exchange(at->second, came)).count();
    if (event.finish != FinishReason::none) s.last_token.erase(at);
  }
  for (size_t i = 0; seconds >= 0 && i < n; ++i) s.between.Observe(seconds / double(n));
}

void Metrics::on_refused(int status) { state_->refusals.Add({{"status", std::to_string(status)}}).Increment(); }

void Metrics::watch(std::shared_ptr<LiveFiguresSource> source, About about) {
  const std::lock_guard lock(state_->mutex);
  state_->source = std::move(source);
  state_->about = std::move(about);
}

void Metrics::watch_connections(std::function<int()> n_connections) {
  const std::lock_guard lock(state_->mutex);
  state_->n_connections = std::move(n_connections);
}

void Metrics::State::add_process(std::vector<prom::MetricFamily>& all) {
  all.push_back(gauge("process_resident_memory_bytes", "Memory of the process", double(resident_bytes())));
  all.push_back(gauge("process_open_fds", "Open files and sockets", n_open_files()));
  all.push_back(gauge("ridge_uptime_seconds", "Since the server began", Seconds(std::chrono::steady_clock::now() - start).count()));
  if (n_connections) all.push_back(gauge("ridge_http_connections", "Open connections", n_connections()));
}

void Metrics::State::add_engine(std::vector<prom::MetricFamily>& all, const LiveFigures& f, double bandwidth) {
  all.push_back(family("ridge_info", "The server", prom::MetricType::Gauge, {{{{"model", about.model}, {"version", about.version}, {"device", about.device}}, 1}}));
  all.push_back(gauge("ridge_requests_running", "Requests in the batch", f.n_running));
  all.push_back(gauge("ridge_requests_waiting", "Requests in the queue", f.n_waiting));
  all.push_back(family("ridge_kv_pages", "Pages of the KV cache", prom::MetricType::Gauge,
                       {{{{"state", "used"}}, double(f.n_used_pages)}, {{{"state", "shared"}}, double(f.n_shared_pages)}, {{{"state", "cached"}}, double(f.n_cached_pages)},
                        {{{"state", "free"}}, double(f.n_free_pages)}}));
  all.push_back(gauge("ridge_kv_used_share", "Share of the KV pages that requests hold", f.n_pages ? double(f.n_used_pages) / double(f.n_pages) : 0));
  all.push_back(counter("ridge_prefix_lookup_tokens_total", "Tokens looked up in the prefix cache", double(f.cache.n_lookup_tokens)));
  all.push_back(counter("ridge_prefix_hit_tokens_total", "Tokens found in the prefix cache", double(f.cache.n_hit_tokens)));
  all.push_back(counter("ridge_prefix_lookups_total", "Requests looked up in the prefix cache", double(f.cache.n_lookups)));
  all.push_back(counter("ridge_prefix_hits_total", "Requests of which something was found in the prefix cache", double(f.cache.n_hits)));
  std::vector<Figure> misses;
  for (int i = 0; i < kMissReasons; ++i) misses.push_back({{{"reason", std::string(name_of(MissReason(i)))}}, double(f.cache.misses[size_t(i)])});
  all.push_back(family("ridge_prefix_misses_total", "Requests of which nothing was found, by reason", prom::MetricType::Counter, std::move(misses)));
  all.push_back(counter("ridge_prefix_evicted_pages_total", "Pages the prefix cache gave up", double(f.cache.n_evicted_pages)));
  all.push_back(counter("ridge_preemptions_total", "Requests that had to make room", double(f.engine.n_preemptions)));
  all.push_back(counter("ridge_steps_total", "Forward passes", double(f.engine.n_steps)));
  all.push_back(counter("ridge_steps_ahead_total", "Forward passes that were submitted before the one before them was done", double(f.engine.n_ahead)));
  all.push_back(counter("ridge_draws_left_open_total", "Tokens that the device could not draw for sure and left to the host", double(f.engine.n_left_open)));
  all.push_back(counter("ridge_step_seconds_total", "Time in forward passes", f.engine.seconds_in_steps));
  all.push_back(family("ridge_step_tokens_total", "Tokens computed", prom::MetricType::Counter,
                       {{{{"kind", "prefill"}}, double(f.engine.n_prefill_tokens)}, {{{"kind", "decode"}}, double(f.engine.n_decode_tokens)}}));
  all.push_back(counter("ridge_moved_bytes_total", "Bytes that the steps moved: weights, KV and activations", double(f.moved_bytes)));
  all.push_back(gauge("ridge_bytes_per_token", "Bytes moved per decoded token, lately", f.bytes_per_token));
  all.push_back(gauge("ridge_read_bandwidth_bytes_per_second", "What the device can read, measured at the start", bandwidth));
  all.push_back(gauge("ridge_bandwidth_share", "Bytes moved per second by steps that only decode, over the measured bandwidth, lately", f.bandwidth_share));
}

void Metrics::look(LiveFiguresSource::Then then) const {
  std::shared_ptr<LiveFiguresSource> source;
  {
    const std::lock_guard lock(state_->mutex);
    source = state_->source;
  }
  if (source) source->get(std::move(then));
  else then({});
}

std::string Metrics::text(const LiveFigures& figures) const {
  State& s = *state_;
  std::vector<prom::MetricFamily> all = s.registry.Collect();
  std::string model;
  {
    const std::lock_guard lock(s.mutex);
    s.add_process(all);
    if (s.source) s.add_engine(all, figures, s.source->bandwidth());
    model = s.about.model;
  }
  const size_t n_ours = all.size();
  for (size_t i = 0; s.vllm_names && i < n_ours; ++i)
    for (const auto& [ours, theirs] : kVllmNames) {
      if (all[i].name != ours) continue;
      prom::MetricFamily copy = all[i];
      copy.name = theirs;
      for (prom::ClientMetric& metric : copy.metric) {
        for (auto& label : metric.label)
          if (label.name == "finish") label.name = "finished_reason";
        metric.label.push_back({"model_name", model});
      }
      all.push_back(std::move(copy));
    }
  std::ostringstream out;
  prom::TextSerializer().Serialize(out, all);
  return out.str();
}

Json Metrics::live(const LiveFigures& f) const {
  const State& s = *state_;
  About about;
  double bandwidth = -1;
  {
    const std::lock_guard lock(state_->mutex);
    about = s.about;
    if (s.source) bandwidth = s.source->bandwidth();
  }
  const double up = Seconds(std::chrono::steady_clock::now() - s.start).count();
  Json out{{"model", about.model}, {"device", about.device}, {"version", about.version}, {"uptime_s", up}, {"time", up}, {"max_context", about.max_context}, {"max_seqs", about.max_seqs}};
  if (bandwidth < 0) return out;
  out["total"] = {{"prompt_tokens", f.engine.n_prefill_tokens + f.cache.n_hit_tokens}, {"cached_tokens", f.cache.n_hit_tokens}, {"generated_tokens", s.n_generated.load()},
                  {"requests", s.n_requests.load()}, {"preemptions", f.engine.n_preemptions}, {"steps", f.engine.n_steps}, {"steps_ahead", f.engine.n_ahead}, {"bytes", f.moved_bytes}, {"decode_bytes", f.engine.decoding.traffic.bytes()}, {"decode_seconds", f.engine.decoding.seconds}, {"decode_tokens", f.engine.decoding.n_tokens},
                  {"step_seconds", f.engine.seconds_in_steps}, {"step_tokens", f.engine.n_prefill_tokens + f.engine.n_decode_tokens}};
  out["time"] = f.time;                      // when the figures were taken: rates are differences over it
  out["running"] = f.n_running;
  out["waiting"] = f.n_waiting;
  out["bandwidth"] = bandwidth;
  out["bytes_per_token"] = f.bytes_per_token;
  out["bandwidth_share"] = f.bandwidth_share;
  out["kv"] = {{"pages", f.n_pages}, {"used", f.n_used_pages}, {"shared", f.n_shared_pages}, {"cached", f.n_cached_pages}, {"free", f.n_free_pages}, {"page_tokens", about.page_size}, {"bytes", about.kv_bytes}};
  return out;
}

}  // namespace ridge
