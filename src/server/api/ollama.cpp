// Ollama's /api/chat, /api/generate, /api/tags and /api/show: a stream is one JSON object per line, and streaming is what happens unless it is switched off.
#include <filesystem>

#include "server/api/conversation.h"
#include "server/api/handlers.h"
#include "server/api/job_fields.h"
#include "server/api/shapes.h"

namespace ridge {
namespace {

int64_t nanoseconds(TimePoint from, TimePoint to) { return to > from ? std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count() : 0; }

// Ollama says "name:latest" for a name.
Json with_model_name(const Json& body, const Service& service) {
  Json out = body;
  if (!out.is_object() || !out.contains("model") || !out["model"].is_string()) return out;
  std::string name = out["model"].get<std::string>();
  if (name.ends_with(":latest")) name.resize(name.size() - 7);
  for (const std::string& served : service.options.model_names)
    if (served == name) out["model"] = name;
  if (service.adapters->has(name)) out["model"] = name;
  return out;
}

void read_common(Job& job, const Fields& fields, const Service& service) {
  job.adapter = check_model(fields, service);
  job.params = service.options.defaults;
  if (const auto options = fields.object("options")) read_sampling(job.params, *options, service);
  job.stream = fields.boolean("stream").value_or(true);
  job.include_usage = true;
  if (const Json* format = fields.find("format")) {
    if (format->is_object()) job.constraint = {Constraint::Kind::json_schema, *format, "format"};
    else if (*format == "json") job.constraint = {Constraint::Kind::json_object, nullptr, "format"};
    else if (*format != "") fields.refuse("format", "must be \"json\" or a JSON schema");
  }
  if (job.params.max_tokens == 0) refuse_field("options.num_predict", "= 0: must be at least 1, or -1 for no limit");
}

void read_think(ChatJob& job, const Fields& fields) {
  const Json* think = fields.find("think");
  if (!think) return;
  if (think->is_boolean()) job.template_variables["enable_thinking"] = think->get<bool>();
  else if (think->is_string()) job.template_variables["reasoning_effort"] = *think;
  else fields.refuse("think", "must be true, false, \"low\", \"medium\" or \"high\"");
}

class OllamaWriter : public AnswerWriter {
 public:
  OllamaWriter(ServicePtr service, bool is_chat) : service_(std::move(service)), is_chat_(is_chat) {}
  std::string stream_type() const override { return "application/x-ndjson"; }

  std::string whole(const std::vector<Answer>& answers, const Usage& usage) override {
    const Answer& answer = answers.at(0);
    return dumped(last(answer, usage, said(answer.reasoning, answer.content, answer.calls)));
  }
  std::string begin(const Usage&) override { return {}; }
  std::string piece(const Answer& answer, const AnswerPiece& piece, const Usage&) override {
    // Calls are given whole: all but the one that is being written, and that one when the answer ends.
    const size_t n_whole = answer.finish.empty() ? std::max<size_t>(answer.calls.size(), 1) - 1 : answer.calls.size();
    const std::vector<ToolCall> calls(answer.calls.begin() + std::ptrdiff_t(std::min(n_told_, n_whole)), answer.calls.begin() + std::ptrdiff_t(n_whole));
    n_told_ = std::max(n_told_, n_whole);
    if (piece.delta.reasoning.empty() && piece.delta.content.empty() && calls.empty()) return {};
    Json line = head();
    line.update(said(piece.delta.reasoning, piece.delta.content, calls));
    line["done"] = false;
    return dumped(line) + "\n";
  }
  std::string finished(const Answer& answer, const Usage& usage) override {
    const std::vector<ToolCall> rest(answer.calls.begin() + std::ptrdiff_t(std::min(n_told_, answer.calls.size())), answer.calls.end());
    return dumped(last(answer, usage, said("", "", rest))) + "\n";
  }
  std::string end(const std::vector<Answer>&, const Usage&) override { return {}; }
  std::string failed(const std::string& message) override { return dumped({{"error", message}}) + "\n"; }

 private:
  Json head() const { return {{"model", service_->name()}, {"created_at", iso_time()}}; }
  Json said(const std::string& reasoning, const std::string& content, const std::vector<ToolCall>& calls) const {
    if (!is_chat_) {
      Json out = {{"response", content}};
      if (!reasoning.empty()) out["thinking"] = reasoning;
      return out;
    }
    Json message = {{"role", "assistant"}, {"content", content}};
    if (!reasoning.empty()) message["thinking"] = reasoning;
    if (!calls.empty()) {
      Json list = Json::array();
      for (const ToolCall& call : calls) {
        Json arguments = call.arguments;
        try {
          arguments = parse_json(call.arguments.empty() ? "{}" : call.arguments, "arguments");
        } catch (const Error&) {
        }
        list.push_back({{"function", {{"name", call.name}, {"arguments", std::move(arguments)}}}});
      }
      message["tool_calls"] = std::move(list);
    }
    return {{"message", std::move(message)}};
  }
  Json last(const Answer& answer, const Usage& usage, Json said) const {
    const RequestTiming& t = answer.timing;
    const TimePoint now = std::chrono::steady_clock::now();
    Json line = head();
    line.update(said);
    line["done"] = true;
    line["done_reason"] = answer.finish == "length" ? "length" : "stop";
    line["total_duration"] = nanoseconds(t.arrived, now);
    line["load_duration"] = 0;
    line["prompt_eval_count"] = usage.n_prompt;
    line["prompt_eval_duration"] = nanoseconds(t.scheduled, t.first_token);
    line["eval_count"] = usage.n_generated;
    line["eval_duration"] = nanoseconds(t.first_token, now);
    line["cached_tokens"] = usage.n_cached;
    return line;
  }

  ServicePtr service_;
  bool is_chat_;
  size_t n_told_ = 0;
};

void run(const ServicePtr& service, const ReplyPtr& reply, std::vector<Prepared> prompts, const Job& job, bool is_chat) {
  answer_request(service, reply, std::move(prompts), job, std::make_unique<OllamaWriter>(named_for(service, job), is_chat), ollama_error);
}

int64_t bytes_on_disk(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (fs::is_regular_file(path, ec)) return int64_t(fs::file_size(path, ec));
  int64_t total = 0;
  for (fs::directory_iterator it(path, ec), last; !ec && it != last; it.increment(ec))
    if (it->path().extension() == ".gguf" || it->path().extension() == ".safetensors") total += int64_t(it->file_size(ec));
  return total;
}

Json model_entry(const Service& service, const std::string& name) {
  const Json& config = service.checkpoint.config;
  return {{"name", name},
          {"model", name},
          {"modified_at", iso_time(service.started)},
          {"size", bytes_on_disk(service.checkpoint.path)},
          {"digest", ""},
          {"details", {{"format", service.checkpoint.gguf ? "gguf" : "safetensors"}, {"family", config.value("model_type", "")}, {"parameter_size", ""}, {"quantization_level", ""}}}};
}

}  // namespace

ChatJob parse_ollama_chat(const Json& body, const Service& service) {
  const Json named = with_model_name(body, service);
  const Fields fields(named);
  ChatJob job;
  read_common(job, fields, service);
  if (const Json* messages = fields.array("messages"))
    for (size_t i = 0; i < messages->size(); ++i)
      if ((*messages)[i].is_object() && (*messages)[i].contains("images") && !(*messages)[i]["images"].empty())
        throw ApiError(400, fmt::format("messages[{}].images: this model takes text alone; leave the images out", i), fmt::format("messages[{}].images", i));
  job.messages = read_messages(fields);
  read_tools(job, fields);
  read_think(job, fields);
  job.continue_final_message = job.messages.back()["role"] == "assistant" && !job.messages.back().contains("tool_calls");
  job.add_generation_prompt = !job.continue_final_message;
  return job;
}

void handle_ollama_chat(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const ChatJob job = parse_ollama_chat(body_of(request), *service);
  std::vector<Prepared> prompts;
  prompts.push_back(prepare_chat(*service, job));
  run(service, reply, std::move(prompts), job, true);
}

void handle_ollama_generate(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const Json named = with_model_name(body_of(request), *service);
  const Fields fields(named);
  if (const Json* images = fields.array("images"); images && !images->empty()) fields.refuse("images", "this model takes text alone; leave the field out");
  const std::string prompt = fields.text("prompt").value_or("");
  const std::string suffix = fields.text("suffix").value_or("");
  std::vector<Prepared> prompts;
  if (fields.boolean("raw").value_or(false) || !suffix.empty()) {
    CompletionJob job;
    read_common(job, fields, *service);
    job.prompts = {{.text = prompt}};
    if (!suffix.empty()) job.suffix = suffix;
    prompts = prepare_completions(*service, job);
    return run(service, reply, std::move(prompts), job, false);
  }
  ChatJob job;
  read_common(job, fields, *service);
  read_think(job, fields);
  if (const auto system = fields.text("system"); system && !system->empty()) job.messages.push_back({{"role", "system"}, {"content", *system}});
  job.messages.push_back({{"role", "user"}, {"content", prompt}});
  prompts.push_back(prepare_chat(*service, job));
  run(service, reply, std::move(prompts), job, false);
}

void handle_ollama_tags(const ServicePtr& service, const HttpRequest&, const ReplyPtr& reply) {
  Json models = Json::array();
  for (const std::string& name : service->options.model_names) models.push_back(model_entry(*service, name));
  send_json(reply, {{"models", std::move(models)}});
}

void handle_ollama_show(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const Json named = with_model_name(body_of(request), *service);
  const Fields fields(named);
  check_model(fields, *service);
  Json out = model_entry(*service, service->name());
  out["template"] = service->chat_template.source();
  out["capabilities"] = service->format->has_tools() ? Json::array({"completion", "tools"}) : Json::array({"completion"});
  out["model_info"] = {{"general.architecture", service->checkpoint.config.value("model_type", "")}, {"context_length", service->facts.max_context()}};
  send_json(reply, out);
}

}  // namespace ridge
