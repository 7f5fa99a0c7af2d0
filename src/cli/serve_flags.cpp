#include "cli/serve_flags.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/trimmed.h"
#include "engine/device.h"

namespace ridge {
namespace {

constexpr int kSeqsOnCpu = 32, kSeqsOnGpu = 256;
constexpr double kShareOfGpu = 0.9;
constexpr int64_t kRoomOfGpu = int64_t{2} << 30;       // for activations, graphs and the driver

void add_http_flags(CLI::App& c, ServeFlags& f) {
  const char* group = "Where and for whom";
  c.add_option("--host", f.host, "Address to listen at; 0.0.0.0: every interface")->capture_default_str()->group(group);
  c.add_option("--port", f.port, "Port; 0: any free one")->check(CLI::Range(0, 65535))->capture_default_str()->group(group);
  c.add_option("--api-key", f.api_keys, "A key that requests must carry (may be given several times; also the environment's RIDGE_API_KEY)")->allow_extra_args(false)->group(group);
  c.add_option("--api-key-file", f.api_key_file, "A file with one key per line")->group(group);
  c.add_option("--ssl-certfile,--ssl-cert-file", f.certificate, "TLS: the certificate chain, a PEM file")->group(group);
  c.add_option("--ssl-keyfile,--ssl-key-file", f.key, "TLS: the key, a PEM file")->group(group);
  c.add_option("--cors-origin,--allowed-origins", f.cors_origin, "Origins whose pages may ask, with commas between; * for all")->group(group);
  c.add_option("--max-connections", f.max_connections, "Connections at one time")->check(CLI::Range(1, 1000000))->capture_default_str()->group(group);
  c.add_option("--max-body-mb", f.max_body_mb, "Largest request in MB")->check(CLI::Range(1, 2000))->capture_default_str()->group(group);
  c.add_option("--io-threads,--threads-http", f.io_threads, "Threads for connections")->check(CLI::Range(1, 256))->capture_default_str()->group(group);
  c.add_option("--timeout-header", f.header_timeout, "Seconds for a request's head to arrive")->check(CLI::Range(1, 86400))->capture_default_str()->group(group);
  c.add_option("--timeout-body", f.body_timeout, "Seconds for a request's body to arrive")->check(CLI::Range(1, 86400))->capture_default_str()->group(group);
  c.add_option("--timeout-keep-alive", f.idle_timeout, "Seconds an idle connection stays open")->check(CLI::Range(1, 86400))->capture_default_str()->group(group);
  c.add_option("--timeout-write,--timeout", f.write_timeout, "Seconds a client may take no bytes of its answer")->check(CLI::Range(1, 86400))->capture_default_str()->group(group);
  c.add_option("--timeout-graceful-shutdown", f.stop_timeout, "Seconds that answers may take to end after Ctrl-C or SIGTERM")->check(CLI::Range(0, 86400))->capture_default_str()->group(group);
  c.add_option("--log-format", f.log_format, "Lines about requests: text (key=value) or json")->check(CLI::IsMember({"text", "json"}))->capture_default_str()->group(group);
  c.add_flag("--no-access-log,--disable-access-log", f.no_access_log, "No lines about requests")->group(group);
  c.add_option("--metrics-names", f.metrics_names, "Names at /metrics: ridge, or vllm for vLLM's beside ours")->check(CLI::IsMember({"ridge", "vllm"}))->capture_default_str()->group(group);
}

void add_text_flags(CLI::App& c, ServeFlags& f) {
  const char* group = "What requests see";
  c.add_option("--served-model-name,--alias", f.names, "Name of the model in the API; may be given several times, answers carry the first")->allow_extra_args(false)->group(group);
  c.add_option("--chat-template", f.chat_template, "Chat template: a file, or the Jinja text itself; else the model's own")->group(group);
  c.add_option("--default-chat-template-kwargs", f.template_kwargs, "JSON object of variables for the chat template, such as {\"enable_thinking\": false}")->group(group);
  c.add_option("--tool-call-parser", f.tool_parser, "How tool calls and thoughts are written; auto: as the chat template does")->capture_default_str()->group(group);
  c.add_option("--reasoning-format", f.reasoning_format, "Thoughts of models that think: auto (apart, as reasoning_content) or none (left in the content)")->check(CLI::IsMember({"auto", "deepseek", "none"}))->capture_default_str()->group(group);
  c.add_option("--generation-config", f.generation_config, "Defaults of requests: auto (the model's generation_config.json) or neutral")->check(CLI::IsMember({"auto", "neutral", "vllm"}))->capture_default_str()->group(group);
}

void add_engine_flags(CLI::App& c, ServeFlags& f) {
  const char* group = "How it serves";
  c.add_option("--max-model-len", f.how.ctx_size, "The same as --ctx-size")->check(CLI::NonNegativeNumber)->group(group);
  c.add_option("--max-num-seqs,--parallel,--np", f.max_seqs, "Requests in one batch; 0: 32 on a CPU, 256 on a GPU")->check(CLI::Range(0, 4096))->group(group);
  c.add_option("--max-num-batched-tokens", f.max_batch_tokens, "Tokens of one step; 0: what the device does well at once")->check(CLI::Range(0, 65536))->group(group);
  c.add_option("--gpu-memory-utilization,--mem-fraction", f.memory_share, "Share of the device's free memory for weights and KV; 0: 0.9 of a GPU, a quarter of the free memory for KV on a CPU")->check(CLI::Range(0.0, 1.0))->group(group);
  c.add_option("--kv-cache-gb", f.kv_gb, "Memory for KV in GB, instead")->check(CLI::Range(0.0, 100000.0))->group(group);
  c.add_option("--swap-space,--swap-gb", f.swap_gb, "Host memory in GB for requests that had to make room; 0: they are computed again")->check(CLI::Range(0.0, 100000.0))->group(group);
  c.add_option("--lora-modules,--lora", f.adapters, "LoRA adapters (PEFT folders) over the model, as name=folder; requests choose one as their model; may be repeated")->allow_extra_args(false)->delimiter(',')->group(group);
  c.add_flag("--allow-runtime-lora-updating", f.may_load_adapters, "Lets requests load and unload adapters (/v1/load_lora_adapter)")->group(group);
  c.add_option("--block-size", f.page_size, "Tokens of a KV page: 16, 32 or 64")->check(CLI::IsMember({16, 32, 64}))->capture_default_str()->group(group);
  c.add_option("--scheduling-policy", f.policy, "Who is taken from the queue first: fcfs, priority, or lpm (longest cached prefix)")->check(CLI::IsMember({"fcfs", "priority", "lpm"}))->capture_default_str()->group(group);
  c.add_option("--target-ttft-ms", f.target_ttft_ms, "Wanted time to the first token; 0: none")->check(CLI::NonNegativeNumber)->group(group);
  c.add_option("--target-tpot-ms", f.target_tpot_ms, "Wanted time per token; 0: none")->check(CLI::NonNegativeNumber)->group(group);
  c.add_option("--max-slowdown", f.max_slowdown, "How much longer a step may get for those who are being answered when a new prompt is worked on beside them: 0.5 = 1.5 times (more when several short ones come at once); 0: no limit")
      ->check(CLI::Range(0.0, 1000.0))->capture_default_str()->group(group);
  c.add_option("--max-queue", f.max_queue, "Requests that may wait or run; more are answered with 429")->check(CLI::Range(1, 1000000))->capture_default_str()->group(group);
  c.add_option("--max-per-user", f.max_per_user, "Requests of one user (the API's field) at a time; 0: no limit")->check(CLI::NonNegativeNumber)->group(group);
  c.add_flag("--no-prefix-caching,--no-enable-prefix-caching,--disable-radix-cache", f.no_prefix_cache, "Compute every prompt from its beginning")->group(group);
}

}  // namespace

void add_serve_flags(CLI::App& command, ServeFlags& flags) {
  command.add_option("model", flags.model, "The model: a folder, a .gguf file, smollm2, or org/name; none: smollm2");
  command.add_option("-m", flags.model, "The same");
  command.add_flag("--offline", flags.offline, "Fetch nothing");
  add_http_flags(command, flags);
  add_text_flags(command, flags);
  add_engine_flags(command, flags);
  add_model_flags(command, flags.how);
}

HttpOptions http_options(const ServeFlags& f) {
  HttpOptions o{.host = f.host, .port = f.port, .n_threads = f.io_threads, .n_handlers = std::max(4, f.io_threads), .max_body_bytes = int64_t(f.max_body_mb) << 20, .max_connections = f.max_connections};
  o.header_timeout = std::chrono::seconds(f.header_timeout);
  o.body_timeout = std::chrono::seconds(f.body_timeout);
  o.idle_timeout = std::chrono::seconds(f.idle_timeout);
  o.write_timeout = std::chrono::seconds(f.write_timeout);
  o.api_keys = f.api_keys;
  if (const char* key = std::getenv("RIDGE_API_KEY"); key && *key) o.api_keys.emplace_back(key);
  if (!f.api_key_file.empty()) {
    std::istringstream lines(read_file(f.api_key_file));
    for (std::string line; std::getline(lines, line);)
      if (line = trimmed(line); !line.empty() && !line.starts_with('#')) o.api_keys.push_back(line);
    if (o.api_keys.empty()) fail("--api-key-file {}: there is no key in it; one per line", f.api_key_file);
  }
  for (const std::string& key : o.api_keys)
    if (trimmed(key).empty()) fail("--api-key: a key must not be empty");
  if (f.certificate.empty() != f.key.empty()) fail("TLS needs both --ssl-certfile and --ssl-keyfile");
  o.tls_certificate = f.certificate;
  o.tls_key = f.key;
  o.cors_origin = f.cors_origin;
  o.access_log = !f.no_access_log;
  o.log_json = f.log_format == "json";
  const bool local = f.host == "127.0.0.1" || f.host == "localhost" || f.host == "::1";
  if (!local && o.api_keys.empty()) log_warn("Anyone who can reach {} may use this server: --api-key asks for a key.", f.host);
  return o;
}

std::vector<AdapterFlag> adapters_of(const ServeFlags& f) {
  std::vector<AdapterFlag> adapters;
  for (const std::string& text : f.adapters) {
    const size_t at = text.find('=');
    if (at == std::string::npos || at == 0 || at + 1 == text.size()) fail("--lora-modules {}: must be name=folder", text);
    adapters.push_back({text.substr(0, at), text.substr(at + 1)});
  }
  return adapters;
}

EngineOptions serving_options(const ServeFlags& f, int64_t weight_bytes) {
  EngineOptions o = engine_options(f.how);
  o.device = resolve_device(o.device);
  const bool gpu = o.device == "cuda";
  o.max_seqs = f.max_seqs > 0 ? f.max_seqs : gpu ? kSeqsOnGpu : kSeqsOnCpu;
  o.max_batch_tokens = f.max_batch_tokens;
  o.page_size = f.page_size;
  o.policy = f.policy;
  o.target_ttft_ms = f.target_ttft_ms;
  o.target_tpot_ms = f.target_tpot_ms;
  o.prefix_cache = !f.no_prefix_cache;
  o.max_slowdown = f.max_slowdown;
  o.swap_bytes = int64_t(f.swap_gb * 1e9);
  if (f.kv_gb > 0) {
    o.kv_bytes = int64_t(f.kv_gb * 1e9);
  } else if (const double share = f.memory_share > 0 ? f.memory_share : gpu ? kShareOfGpu : 0; share > 0) {
    const int64_t free = free_memory(o.device);
    o.kv_bytes = int64_t(share * double(free)) - weight_bytes - (gpu ? std::min(kRoomOfGpu, free / 10) : 0);
    if (o.kv_bytes <= 0)
      fail("--gpu-memory-utilization {}: of {:.1f} GB free on {} nothing is left for KV after {:.1f} GB of weights; a larger share, or --kv-cache-gb", share, double(free) / 1e9, o.device,
           double(weight_bytes) / 1e9);
  }
  return o;
}

Json template_variables(const ServeFlags& f) {
  if (f.template_kwargs.empty()) return Json::object();
  Json json = parse_json(f.template_kwargs, "--default-chat-template-kwargs");
  if (!json.is_object()) fail("--default-chat-template-kwargs {}: must be a JSON object", f.template_kwargs);
  return json;
}

std::string chat_template_source(const ServeFlags& f, const std::string& of_the_model) {
  if (f.chat_template.empty()) return of_the_model;
  std::error_code ec;
  if (std::filesystem::is_regular_file(f.chat_template, ec)) return read_file(f.chat_template);
  if (f.chat_template.find_first_of("{\n") == std::string::npos) fail("--chat-template {}: there is no such file, and it is no Jinja template either", f.chat_template);
  return f.chat_template;
}

}  // namespace ridge
