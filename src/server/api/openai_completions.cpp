// /v1/completions: prompts are texts or tokens, one or many; echo gives them back, with their probabilities when those are asked for.
#include <utility>

#include "base/utf8.h"
#include "server/api/handlers.h"
#include "server/api/job_fields.h"
#include "server/api/shapes.h"

namespace ridge {
namespace {

constexpr int kUsualMaxTokens = 16;            // OpenAI's
constexpr size_t kMaxPrompts = 1024;

// OpenAI's older form: parallel lists. Offsets count characters from the start of the choice's text.
struct LogprobLists {
  Json tokens = Json::array(), token_logprobs = Json::array(), top_logprobs = Json::array(), text_offset = Json::array();
  void add(const Tokenizer& tokenizer, int32_t token, Json logprob, const std::vector<TokenLogprob>& top, int n_top, int64_t& offset) {
    const std::string text = token_text(tokenizer, token);
    tokens.push_back(text);
    text_offset.push_back(offset);
    offset += int64_t(utf8::decode(text).size());
    if (logprob.is_null()) {
      token_logprobs.push_back(nullptr);
      top_logprobs.push_back(nullptr);
      return;
    }
    Json likeliest = Json::object();
    for (size_t i = 0; i < top.size() && int(i) < n_top; ++i) likeliest[token_text(tokenizer, top[i].token)] = double(std::max(top[i].logprob, -9999.0f));
    token_logprobs.push_back(std::move(logprob));
    top_logprobs.push_back(std::move(likeliest));
  }
  Json json() && {
    return {{"tokens", std::move(tokens)}, {"token_logprobs", std::move(token_logprobs)}, {"top_logprobs", std::move(top_logprobs)}, {"text_offset", std::move(text_offset)}};
  }
};

class CompletionWriter : public AnswerWriter {
 public:
  struct Source { std::string text; std::vector<int32_t> tokens; };
  CompletionWriter(ServicePtr service, const CompletionJob& job, const std::string& request_id, std::vector<Source> prompts)
      : service_(std::move(service)), n_logprobs_(job.params.n_logprobs), asked_prompt_logprobs_(job.n_prompt_logprobs >= 0 && !job.echo), echo_(job.echo), include_usage_(job.include_usage),
        continuous_(job.continuous_usage), return_ids_(job.return_token_ids), prompts_(std::move(prompts)), id_("cmpl-" + request_id), created_(unix_seconds()) {}

  std::string whole(const std::vector<Answer>& answers, const Usage& usage) override {
    Json choices = Json::array();
    for (const Answer& answer : answers) {
      int64_t offset = 0;
      Json choice = {{"index", answer.index},
                     {"text", (echo_ ? prompts_[size_t(answer.prompt)].text : "") + answer.content},
                     {"logprobs", logprobs(answer, answer.tokens, echo_, offset)},
                     {"finish_reason", answer.finish},
                     {"stop_reason", answer.stop.empty() ? Json() : Json(answer.stop)}};
      if (asked_prompt_logprobs_) choice["prompt_logprobs"] = prompt_logprobs_json(service_->tokenizer, answer.prompt_logprobs);
      if (return_ids_) choice["token_ids"] = ids_of(answer.tokens), choice["prompt_token_ids"] = prompts_[size_t(answer.prompt)].tokens;
      choices.push_back(std::move(choice));
    }
    Json body = head();
    body["choices"] = std::move(choices);
    body["usage"] = usage_json(usage);
    return dumped(body);
  }

  std::string begin(const Usage&) override { return {}; }

  std::string piece(const Answer& answer, const AnswerPiece& piece, const Usage& usage) override {
    Choice& c = choice(answer.index);
    c.held.insert(c.held.end(), piece.tokens.begin(), piece.tokens.end());
    if (piece.delta.content.empty()) return {};
    return chunk(answer, piece.delta.content, nullptr, usage);
  }
  std::string finished(const Answer& answer, const Usage& usage) override { return chunk(answer, "", answer.finish, usage); }

  std::string end(const std::vector<Answer>&, const Usage& usage) override {
    std::string out;
    if (include_usage_) {
      Json body = head();
      body["choices"] = Json::array();
      body["usage"] = usage_json(usage);
      out = sse(body);
    }
    return out + "data: [DONE]\n\n";
  }
  std::string failed(const std::string& message) override { return sse(error_json(500, message, "", "engine_error")) + "data: [DONE]\n\n"; }

 private:
  struct Choice { bool echoed = false; int64_t offset = 0; std::vector<Sampled> held; };
  Choice& choice(int index) {
    if (size_t(index) >= choices_.size()) choices_.resize(size_t(index) + 1);
    return choices_[size_t(index)];
  }
  static Json ids_of(const std::vector<Sampled>& tokens) {
    Json ids = Json::array();
    for (const Sampled& sampled : tokens) ids.push_back(sampled.token);
    return ids;
  }
  Json head() const { return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", service_->name()}}; }

  Json logprobs(const Answer& answer, const std::vector<Sampled>& tokens, bool with_prompt, int64_t& offset) const {
    if (n_logprobs_ < 0) return nullptr;
    LogprobLists lists;
    if (with_prompt) {
      const std::vector<int32_t>& prompt = prompts_[size_t(answer.prompt)].tokens;
      for (size_t i = 0; i < prompt.size(); ++i) {
        const bool known = i > 0 && i - 1 < answer.prompt_logprobs.size();
        lists.add(service_->tokenizer, prompt[i], known ? Json(double(std::max(answer.prompt_logprobs[i - 1].logprob, -9999.0f))) : Json(),
                  known ? answer.prompt_logprobs[i - 1].top : std::vector<TokenLogprob>{}, n_logprobs_, offset);
      }
    }
    for (const Sampled& sampled : tokens) lists.add(service_->tokenizer, sampled.token, double(std::max(sampled.logprob, -9999.0f)), sampled.top, n_logprobs_, offset);
    return std::move(lists).json();
  }

  std::string chunk(const Answer& answer, const std::string& text, const Json& finish, const Usage& usage) {
    Choice& c = choice(answer.index);
    const bool echo_now = echo_ && !std::exchange(c.echoed, true);
    const std::vector<Sampled> held = std::exchange(c.held, {});
    Json made = {{"index", answer.index},
                 {"text", echo_now ? prompts_[size_t(answer.prompt)].text + text : text},
                 {"logprobs", held.empty() && !echo_now ? Json() : logprobs(answer, held, echo_now, c.offset)},
                 {"finish_reason", finish}};
    if (!answer.stop.empty()) made["stop_reason"] = answer.stop;
    if (return_ids_) made["token_ids"] = ids_of(held);
    Json body = head();
    body["choices"] = Json::array({std::move(made)});
    if (continuous_) body["usage"] = usage_json(usage);
    else if (include_usage_) body["usage"] = nullptr;
    return sse(body);
  }

  ServicePtr service_;
  int n_logprobs_;
  bool asked_prompt_logprobs_, echo_, include_usage_, continuous_, return_ids_;
  std::vector<Source> prompts_;
  std::string id_;
  int64_t created_;
  std::vector<Choice> choices_;
};

}  // namespace

std::vector<Prompt> read_prompts(const Fields& fields, std::string_view name, const Service& service) {
  const Json& given = fields.required(name, "a string, a list of strings, a list of token ids, or a list of such lists");
  const int n_vocab = service.facts.model().n_vocab;
  const std::string at = fields.path(name);
  const auto ids_of = [&](const Json& list, const std::string& path) {
    std::vector<int32_t> ids;
    ids.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) ids.push_back(token_id(list[i], path, i, n_vocab));
    if (ids.empty()) refuse_field(path, "is an empty list: at least one token is needed");
    return ids;
  };
  if (given.is_string()) return {{.text = given.get<std::string>()}};
  if (!given.is_array() || given.empty()) fields.refuse(name, "must be a string, a list of strings, a list of token ids, or a list of such lists");
  if (given[0].is_number()) return {{.tokens = ids_of(given, at)}};
  if (given.size() > kMaxPrompts) refuse_field(at, fmt::format("has {} prompts: at most {}", given.size(), kMaxPrompts));
  std::vector<Prompt> out;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string path = fmt::format("{}[{}]", at, i);
    if (given[i].is_string()) out.push_back({.text = given[i].get<std::string>()});
    else if (given[i].is_array()) out.push_back({.tokens = ids_of(given[i], path)});
    else throw ApiError(400, fmt::format("{} = {}: must be a string or a list of token ids", path, shown(given[i])), path);
  }
  return out;
}

CompletionJob parse_completion(const Json& body, const Service& service) {
  const Fields fields(body);
  CompletionJob job;
  read_job(job, fields, service);
  const bool says_length = fields.has("max_tokens") || fields.has("max_completion_tokens") || fields.has("n_predict");
  if (!says_length) job.params.max_tokens = std::max(kUsualMaxTokens, job.params.min_tokens);
  job.prompts = read_prompts(fields, "prompt", service);
  job.echo = fields.boolean("echo").value_or(false);
  job.params.n_logprobs = read_top_logprobs(fields, "logprobs", service, -1);
  if (job.echo && job.params.n_logprobs >= 0) job.n_prompt_logprobs = job.params.n_logprobs;
  if (job.params.max_tokens == 0 && !job.echo && job.n_prompt_logprobs < 0) fields.refuse("max_tokens", "0 is for scoring a prompt: it needs echo = true or prompt_logprobs");
  job.suffix = fields.text("suffix");
  if (job.suffix && job.suffix->empty()) job.suffix.reset();
  if (job.suffix && job.prompts[0].tokens) fields.refuse("suffix", "needs a prompt that is text");
  job.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  return job;
}

void handle_completions(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const CompletionJob job = parse_completion(body_of(request), *service);
  std::vector<Prepared> prompts = prepare_completions(*service, job);
  std::vector<CompletionWriter::Source> sources;
  for (const Prepared& prompt : prompts) sources.push_back({prompt.text, prompt.request.prompt});
  auto writer = std::make_unique<CompletionWriter>(named_for(service, job), job, request.id, std::move(sources));
  answer_request(service, reply, std::move(prompts), job, std::move(writer), openai_error);
}

}  // namespace ridge
