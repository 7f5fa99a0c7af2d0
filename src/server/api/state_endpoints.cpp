// What the server is and what it does: models, version, properties, live requests, the prefix cache, adapters.
#include "kv/prefix_report.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/shapes.h"

namespace ridge {
namespace {

Json model_json(const Service& service, const std::string& name) {
  // `type` and what follows it is how Anthropic's clients know models.
  return {{"id", name},
          {"object", "model"},
          {"created", unix_seconds(service.started)},
          {"owned_by", "ridgeline"},
          {"root", service.checkpoint.name},
          {"max_model_len", service.facts.max_context()},
          {"type", "model"},
          {"display_name", name},
          {"created_at", iso_time(service.started)}};
}

Json params_json(const SamplingParams& p) {
  return {{"temperature", p.temperature},
          {"top_k", p.top_k},
          {"top_p", p.top_p},
          {"min_p", p.min_p},
          {"typical_p", p.typical_p},
          {"repeat_penalty", p.repetition_penalty},
          {"presence_penalty", p.presence_penalty},
          {"frequency_penalty", p.frequency_penalty},
          {"dry_multiplier", p.dry_multiplier},
          {"xtc_probability", p.xtc_probability},
          {"mirostat", p.mirostat},
          {"top_n_sigma", p.top_n_sigma},
          {"n_predict", p.max_tokens}};
}

const char* state_name(SeqState state) { return state == SeqState::waiting ? "waiting" : state == SeqState::running ? "running" : "finished"; }

}  // namespace

Json body_of(const HttpRequest& request) {
  try {
    Json body = parse_json(request.body, "the body");
    if (!body.is_object()) throw ApiError(400, fmt::format("the body must be a JSON object, not {}", shown(body)));
    return body;
  } catch (const ApiError&) {
    throw;
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "", "invalid_json");
  }
}

void send_json(const ReplyPtr& reply, const Json& json, int status) { reply->send(status, "application/json", dumped(json)); }

void handle_models(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const auto& names = service->options.model_names;
  constexpr std::string_view kOne = "/v1/models/";
  if (request.path.starts_with(kOne)) {
    const std::string name = request.path.substr(kOne.size());
    if (std::find(names.begin(), names.end(), name) == names.end() && !service->adapters->has(name))
      throw ApiError(404, fmt::format("the model {} is not served here; what is: see /v1/models", shown(name)), "model", "model_not_found");
    return send_json(reply, model_json(*service, name));
  }
  Json data = Json::array();
  for (const std::string& name : names) data.push_back(model_json(*service, name));
  for (const std::string& name : service->adapters->all()) {
    data.push_back(model_json(*service, name));
    data.back()["parent"] = service->name();
  }
  send_json(reply, {{"object", "list"}, {"data", std::move(data)}, {"has_more", false}, {"first_id", names.front()}, {"last_id", names.back()}});
}

void handle_version(const ServicePtr& service, const HttpRequest&, const ReplyPtr& reply) { send_json(reply, {{"version", service->options.version}}); }

void handle_props(const ServicePtr& service, const HttpRequest&, const ReplyPtr& reply) {
  const Checkpoint& checkpoint = service->checkpoint;
  send_json(reply, {{"default_generation_settings", {{"n_ctx", service->facts.max_context()}, {"params", params_json(service->options.defaults)}}},
                    {"total_slots", service->facts.options().max_seqs},
                    {"model_alias", service->name()},
                    {"model_path", checkpoint.name},
                    {"chat_template", service->chat_template.source()},
                    {"answer_format", service->format->name()},
                    {"modalities", {{"vision", false}, {"audio", false}}},
                    {"bos_token", checkpoint.bos_token},
                    {"eos_token", checkpoint.eos_token},
                    {"build_info", "ridge " + service->options.version}});
}

// What lives in the engine right now, between two steps. llama-server lists its slots, busy or not; here a slot is shown while a request has it, and waiting
// requests have none.
void handle_slots(const ServicePtr& service, const HttpRequest&, const ReplyPtr& reply) {
  const std::vector<LiveRequest> live = service->engine.between_steps([](Engine& engine) { return engine.live(); });
  Json slots = Json::array();
  for (const LiveRequest& r : live)
    slots.push_back({{"id", r.slot},
                     {"id_task", r.id},
                     {"state", state_name(r.state)},
                     {"is_processing", r.state == SeqState::running},
                     {"n_ctx", service->facts.max_context()},
                     {"n_prompt", r.n_prompt},
                     {"n_cached", r.n_cached},
                     {"n_computed", r.n_computed},
                     {"n_generated", r.n_generated},
                     {"n_preempted", r.n_preempted},
                     {"priority", r.priority}});
  send_json(reply, slots);
}

// With ?check=1 the pages are counted against all who hold them as well; a pool that is not whole ends the server there and then.
void handle_cache(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const bool check = request.query_value("check") == "1";
  const PrefixReport report = service->engine.between_steps([check](Engine& engine) {
    if (check) engine.check_integrity();
    return engine.cache_report();
  });
  Json misses = Json::object(), missed = Json::object(), groups = Json::array();
  for (int i = 0; i < kMissReasons; ++i) {
    const std::string name(name_of(MissReason(i)));
    misses[name] = report.misses[size_t(i)];
    missed[name] = report.missed_tokens[size_t(i)];
  }
  for (const PrefixReport::Group& g : report.groups)
    groups.push_back({{"pages", g.n_pages}, {"free", g.n_free}, {"held", g.n_held}, {"cached", g.n_cached}, {"shared", g.n_shared}});
  const auto share = [](int64_t part, int64_t of) { return of > 0 ? double(part) / double(of) : 0.0; };
  send_json(reply, {{"enabled", report.on},
                    {"page_size", report.page_size},
                    {"lookups", report.n_lookups},
                    {"hits", report.n_hits},
                    {"hit_rate", share(report.n_hits, report.n_lookups)},
                    {"lookup_tokens", report.n_lookup_tokens},
                    {"hit_tokens", report.n_hit_tokens},
                    {"token_hit_rate", share(report.n_hit_tokens, report.n_lookup_tokens)},
                    {"misses", std::move(misses)},
                    {"missed_tokens", std::move(missed)},
                    {"nodes", report.n_nodes},
                    {"tokens", report.n_tokens},
                    {"groups", std::move(groups)},
                    {"evicted_pages", report.n_evicted_pages},
                    {"swapped_out_pages", report.n_swapped_out},
                    {"swapped_in_pages", report.n_swapped_in},
                    {"swapped_bytes", report.swapped_bytes},
                    {"seconds", report.seconds},
                    {"integrity", check ? "ok" : "not checked"}});
}

void handle_cache_flush(const ServicePtr& service, const HttpRequest&, const ReplyPtr& reply) {
  const int64_t dropped = service->engine.between_steps([](Engine& engine) { return engine.flush_cache(); });
  send_json(reply, {{"flushed", true}, {"pages", dropped}});
}

ServicePtr named_for(const ServicePtr& service, const Job& job) {
  if (job.adapter.empty()) return service;
  auto named = std::make_shared<Service>(*service);
  named->options.model_names = {job.adapter};
  return named;
}

// {"lora_name", "lora_path"}, as vLLM has it: the path is on this machine. Requests that run with an adapter that is unloaded go on with it.
void handle_adapters(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const Json body = body_of(request);
  const Fields fields(body);
  if (!service->options.may_load_adapters)
    throw ApiError(403, "this server loads adapters at its start alone (--lora-modules); --allow-runtime-lora-updating lets requests do it", "lora_name", "not_allowed");
  const std::string name = fields.text("lora_name").value_or("");
  if (name.empty()) fields.refuse("lora_name", "must be the name that requests use as their model");
  if (request.path.ends_with("/unload_lora_adapter")) {
    service->engine.between_steps([&](Engine& engine) { engine.unload_adapter(name); });
    service->adapters->remove(name);
    return send_json(reply, {{"unloaded", name}});
  }
  const std::string path = fields.text("lora_path").value_or("");
  if (path.empty()) fields.refuse("lora_path", "must be the adapter's folder on the server's machine");
  const auto& names = service->options.model_names;
  if (std::find(names.begin(), names.end(), name) != names.end()) fields.refuse("lora_name", "is the base model's name");
  service->engine.between_steps([&](Engine& engine) { engine.load_adapter(name, path); });
  service->adapters->add(name);
  send_json(reply, {{"loaded", name}});
}

}  // namespace ridge
