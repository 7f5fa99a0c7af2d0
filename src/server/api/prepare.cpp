#include "server/api/prepare.h"

#include <algorithm>

#include "server/api/fields.h"
#include "text/thought_filter.h"

namespace ridge {
namespace {

constexpr size_t kMostBytesPerToken = 256;     // longer than any vocabulary's words: a text beyond this times the context is refused unread
constexpr size_t kTailBytes = 1024;            // of the prompt, where a template may have opened a thought
constexpr std::string_view kHere = "\xEE\x80\x81ridge-continue\xEE\x80\x81";       // private characters that no conversation holds

// Where the template knows nothing of tools, they are told in words, in the form that most models have seen.
Json with_tools_told(const Json& messages, const Json& tools) {
  std::string words = "You may call functions. Their signatures are within <tools></tools>:\n<tools>\n";
  for (const Json& tool : tools) words += tool.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  words += "</tools>\nTo call one, write a JSON object with its name and arguments within <tool_call></tool_call>:\n"
           "<tool_call>\n{\"name\": \"...\", \"arguments\": {...}}\n</tool_call>";
  Json out = messages;
  if (!out.empty() && (out[0]["role"] == "system" || out[0]["role"] == "developer")) out[0]["content"] = out[0]["content"].get<std::string>() + "\n\n" + words;
  else out.insert(out.begin(), Json{{"role", "system"}, {"content", words}});
  return out;
}

// Calls and their results as text, for templates that would not show them.
void tell_calls(Json& messages) {
  for (Json& message : messages) {
    if (message["content"].is_null()) message["content"] = "";
    if (message.contains("tool_calls")) {
      std::string text = message["content"].get<std::string>();
      for (const Json& call : message["tool_calls"]) text += (text.empty() ? "" : "\n") + ("<tool_call>\n" + call["function"].dump() + "\n</tool_call>");
      message["content"] = text;
      message.erase("tool_calls");
    }
    if (message["role"] == "tool" || message["role"] == "function") {
      message["role"] = "user";
      message["content"] = "<tool_response>\n" + message["content"].get<std::string>() + "\n</tool_response>";
    }
  }
}

bool knows(const Service& service, std::string_view word) { return service.chat_template.source().find(word) != std::string::npos; }

std::shared_ptr<const CompiledGrammar> compile(GrammarCompiler& grammars, const Constraint& constraint) {
  using Kind = Constraint::Kind;
  try {
    switch (constraint.kind) {
      case Kind::none: return nullptr;
      case Kind::json_object: return grammars.json_object();
      case Kind::json_schema: return grammars.json_schema(constraint.value);
      case Kind::regex: return grammars.regex(constraint.value.get<std::string>());
      case Kind::choice: return grammars.choice(constraint.value.get<std::vector<std::string>>());
      case Kind::gbnf: return grammars.gbnf(constraint.value.get<std::string>());
    }
  } catch (const ApiError&) {
    throw;
  } catch (const Error& error) {
    throw ApiError(400, fmt::format("{}: {}", constraint.field, error.what()), constraint.field, "invalid_grammar");
  }
  return nullptr;
}

// After how many tokens a document should come to its end, so that it is whole before the answer must stop.
int soft_end(const Service& service, const Request& request, const Constraint& constraint) {
  const bool is_document = constraint.kind == Constraint::Kind::json_object || constraint.kind == Constraint::Kind::json_schema;
  if (!is_document) return GrammarCompiler::kNoSoftEnd;
  const int room = service.facts.max_context() - int(request.prompt.size());
  const int most = request.params.max_tokens > 0 ? std::min(request.params.max_tokens, room) : room;
  return std::max(16, most / 4 * 3);
}

std::string_view trimmed_end(std::string_view text) {
  const size_t last = text.find_last_not_of(" \n\t\r");
  return last == std::string_view::npos ? std::string_view() : text.substr(0, last + 1);
}

Thought thought_of(const Service& service, const ChatJob& job, std::string_view tail) {
  Thought thought{.begin = std::string(trimmed_end(service.format->reasoning_begin())), .end = std::string(trimmed_end(service.format->reasoning_end())), .budget = job.thinking_budget, .endings = service.checkpoint.eos_ids};
  if (thought.begin.empty() || thought.end.empty()) return {};
  const std::string_view text = trimmed_end(tail);
  const size_t begun = text.rfind(thought.begin), ended = text.rfind(thought.end);
  thought.is_open = job.continue_final_message ? begun != std::string_view::npos && (ended == std::string_view::npos || ended < begun) : text.ends_with(thought.begin);
  // Who was told not to think, or never learnt to, does not begin.
  const bool unwanted = job.template_variables.value("enable_thinking", Json(true)) == Json(false);
  thought.may_open = !thought.is_open && !unwanted && knows(service, thought.begin) && !job.continue_final_message && !text.ends_with(thought.end);
  return thought;
}

Request request_of(const Service& service, const Job& job, std::vector<int32_t> prompt) {
  const int room = service.facts.max_context();
  if (int64_t(prompt.size()) + (job.params.max_tokens != 0) > room)
    throw ApiError(400, fmt::format("the prompt has {} tokens, and the context holds {}: shorten it", prompt.size(), room), "", "context_length_exceeded");
  Request request{.prompt = std::move(prompt), .params = job.params, .n_prompt_logprobs = job.n_prompt_logprobs};
  request.cache_salt = job.cache_salt;
  request.adapter = job.adapter;
  request.priority = job.priority;
  request.user = job.user;
  return request;
}

struct MiddleTokens { const char *prefix, *suffix, *middle; };
constexpr MiddleTokens kMiddle[] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                                    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}, {"▁<PRE>", "▁<SUF>", "▁<MID>"},
                                    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}};

// Fill in the middle, with the marks that the vocabulary has.
std::vector<int32_t> around_middle(const Service& service, const std::string& before, const std::string& after) {
  for (const MiddleTokens& marks : kMiddle) {
    const auto prefix = service.tokenizer.find(marks.prefix), suffix = service.tokenizer.find(marks.suffix), middle = service.tokenizer.find(marks.middle);
    if (!prefix || !suffix || !middle) continue;
    std::vector<int32_t> out{*prefix};
    for (const int32_t token : tokenize(service, before, false)) out.push_back(token);
    out.push_back(*suffix);
    for (const int32_t token : tokenize(service, after, false)) out.push_back(token);
    out.push_back(*middle);
    return out;
  }
  refuse_field("suffix", "this model has no tokens for filling in the middle; leave the field out");
}

}  // namespace

std::vector<int32_t> tokenize(const Service& service, std::string_view text, bool add_special_tokens) {
  const size_t most = size_t(service.facts.max_context()) * kMostBytesPerToken;
  if (text.size() > most)
    throw ApiError(400, fmt::format("the prompt has {} bytes, and the context holds {} tokens: shorten it", text.size(), service.facts.max_context()), "", "context_length_exceeded");
  return service.tokenizer.encode(text, add_special_tokens);
}

std::string render_chat(const Service& service, const ChatJob& job) {
  Json messages = normalize_messages(job.messages, service.chat_template.source());
  Json variables = service.options.template_variables;
  for (const auto& [name, value] : job.template_variables.items()) variables[name] = value;
  const bool has_tools = !job.tools.empty() && job.tool_choice != ToolChoice::none;
  if (has_tools && knows(service, "tools")) variables["tools"] = job.tools;
  else if (has_tools) messages = with_tools_told(messages, job.tools);
  if (!knows(service, "tool_calls")) tell_calls(messages);
  if (!knows(service, "developer"))
    for (Json& message : messages)
      if (message["role"] == "developer") message["role"] = "system";
  bool add_generation_prompt = job.add_generation_prompt;
  if (job.continue_final_message) {
    Json& last = messages.back();
    if (last["role"] != "assistant") refuse_field("continue_final_message", "the last message must be the assistant's");
    last["content"] = (last["content"].is_null() ? "" : last["content"].get<std::string>()) + std::string(kHere);
    add_generation_prompt = false;
  }
  std::string text = service.chat_template.render(messages, add_generation_prompt, variables);
  if (job.continue_final_message) {
    const size_t at = text.rfind(kHere);
    if (at == std::string::npos) refuse_field("continue_final_message", "this model's template does not show the last message's text");
    text.resize(at);
  }
  return text;
}

Prepared prepare_chat(const Service& service, const ChatJob& job) {
  Prepared out;
  out.text = render_chat(service, job);
  out.request = request_of(service, job, tokenize(service, out.text, false));
  const std::string tail = out.text.substr(out.text.size() - std::min(out.text.size(), kTailBytes));
  const bool has_tools = !job.tools.empty() && job.tool_choice != ToolChoice::none;
  const bool must_call = has_tools && (job.tool_choice == ToolChoice::required || job.tool_choice == ToolChoice::named);
  if (must_call && job.constraint.kind != Constraint::Kind::none)
    refuse_field(job.constraint.field, "cannot be combined with a tool_choice that demands a call: the answer would have to be both");

  const AnswerFormat& format = *service.format;
  const Thought thought = thought_of(service, job, tail);
  const bool thinks = thought.is_open || thought.may_open, limited = thinks && thought.budget >= 0;
  Constraint form = job.constraint;
  if (has_tools && form.kind == Constraint::Kind::none) {
    // The grammar of calls has the thought in it, unless the thought is measured: then it stands before the grammar, as before every other.
    const std::string seen = limited ? tail + thought.end : tail;
    if (const auto calls = format.tool_grammar(job.tools, job.tool_choice, job.tool_name, job.parallel_tool_calls, seen)) form = {Constraint::Kind::gbnf, *calls, "tools"};
  }
  const bool calls = form.field == "tools";
  const auto grammar = compile(service.grammars, form);
  const int hurry = soft_end(service, out.request, calls ? Constraint{Constraint::Kind::json_object} : form);
  const bool waits = limited || (thinks && grammar && !calls);
  if (waits || grammar)
    out.make_filter = [&service, grammar, hurry, thought, waits]() -> std::shared_ptr<TokenFilter> {
      auto answer = grammar ? service.grammars.start(grammar, hurry) : nullptr;
      return waits ? std::make_shared<ThoughtFilter>(service.tokenizer, thought, std::move(answer)) : answer;
    };
  if (job.split_reasoning.value_or(service.options.split_reasoning) || has_tools) out.make_parser = [&service, &job, tail, has_tools] { return service.format->parser(tail, has_tools, job.tools); };
  out.writes_specials = out.make_parser && (has_tools || format.name() != "plain");
  return out;
}

std::vector<Prepared> prepare_completions(const Service& service, const CompletionJob& job) {
  std::vector<Prepared> out;
  const auto grammar = compile(service.grammars, job.constraint);
  for (const Prompt& prompt : job.prompts) {
    Prepared one;
    std::vector<int32_t> tokens = prompt.tokens ? *prompt.tokens : job.suffix ? around_middle(service, prompt.text, *job.suffix) : tokenize(service, prompt.text, job.add_special_tokens);
    if (tokens.empty() && service.checkpoint.bos_id) tokens.push_back(*service.checkpoint.bos_id);
    one.text = prompt.tokens ? service.tokenizer.decode(*prompt.tokens, false) : prompt.text;
    one.request = request_of(service, job, std::move(tokens));
    GrammarCompiler& grammars = service.grammars;
    const int hurry = soft_end(service, one.request, job.constraint);
    if (grammar) one.make_filter = [&grammars, grammar, hurry] { return grammars.start(grammar, hurry); };
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace ridge
