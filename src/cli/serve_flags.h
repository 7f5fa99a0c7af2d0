// The flags of `ridge serve`, under the names people know from other servers, and what they mean for HTTP and for the engine.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/model_flags.h"
#include "engine/engine_thread.h"
#include "server/http.h"

namespace ridge {

struct ServeFlags {
  std::string model;
  bool offline = false;
  ModelFlags how;
  // HTTP
  std::string host = "127.0.0.1", cors_origin, certificate, key, log_format = "text";
  int port = 8080, io_threads = 2, max_connections = 20000, max_body_mb = 32;
  int header_timeout = 10, body_timeout = 60, idle_timeout = 75, write_timeout = 30, stop_timeout = 30;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool no_access_log = false;
  // Names, templates, defaults
  std::vector<std::string> names;
  std::string chat_template, template_kwargs, tool_parser = "auto", reasoning_format = "auto", generation_config = "auto", metrics_names = "ridge";
  // The engine
  int max_seqs = 0, max_batch_tokens = 0, page_size = 64, target_ttft_ms = 0, target_tpot_ms = 0, max_queue = 4096, max_per_user = 0;
  double memory_share = 0, kv_gb = 0, swap_gb = 0, max_slowdown = 0.5;
  std::string policy = "fcfs";
  bool no_prefix_cache = false;
  std::vector<std::string> adapters;         // name=folder
  bool may_load_adapters = false;
};

void add_serve_flags(CLI::App& command, ServeFlags& flags);
// Throw Error naming a flag whose value makes no sense.
HttpOptions http_options(const ServeFlags& flags);
struct AdapterFlag { std::string name, folder; };
std::vector<AdapterFlag> adapters_of(const ServeFlags& flags);
EngineOptions serving_options(const ServeFlags& flags, int64_t weight_bytes);
Json template_variables(const ServeFlags& flags);
std::string chat_template_source(const ServeFlags& flags, const std::string& of_the_model);      // a file, or the template itself

}  // namespace ridge
