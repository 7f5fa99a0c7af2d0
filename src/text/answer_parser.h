// What an answer's text is made of: thoughts, content and tool calls. Every template family writes them in its own way; one AnswerFormat per family says how, and serves
// both to constrain an answer (a GBNF grammar of its tool calls) and to take it apart while it streams. Any cutting of the same text into pieces gives the same parts.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ridge {

// What became certain with a piece of text. Tool calls come as OpenAI streams them: first an index with a name, then arguments in pieces whose concatenation is JSON.
struct AnswerDelta {
  struct Call { int index; std::string name, arguments; };      // name: with the first delta of a call alone
  std::string reasoning, content;
  std::vector<Call> calls;
  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  virtual AnswerDelta push(std::string_view text) = 0;          // text with special tokens written out
  virtual AnswerDelta finish() = 0;                             // what was held back; a call that is not whole is given as content
  virtual int n_calls() const = 0;
};

enum class ToolChoice : uint8_t { none, automatic, required, named };

class AnswerFormat {
 public:
  // Chosen by what the chat template contains ("hermes", "llama3", "mistral", "qwen3_coder", "deepseek", "gpt_oss", "glm", "kimi", "plain" ...).
  static std::shared_ptr<const AnswerFormat> for_template(std::string_view template_source);
  static std::shared_ptr<const AnswerFormat> named(std::string_view name);       // throws Error listing the names
  static std::vector<std::string> names();
  virtual ~AnswerFormat() = default;

  virtual std::string_view name() const = 0;
  virtual bool has_tools() const = 0;
  virtual std::string reasoning_begin() const = 0;              // "<think>"; empty: the family does not think
  virtual std::string reasoning_end() const = 0;                // "</think>"
  // `prompt_tail`: the end of the rendered prompt: a template may have opened a thought already. `with_tools`: calls are looked for. `tools`: OpenAI's list, for
  // families that write values without quotes: their types are the schema's (without it, what reads as JSON is JSON).
  virtual std::unique_ptr<AnswerParser> parser(std::string_view prompt_tail, bool with_tools, const Json& tools = nullptr) const = 0;
  // GBNF of an answer under a tool choice that needs constraining (required, named; automatic with strict tools), or nothing. `tools` is OpenAI's list.
  virtual std::optional<std::string> tool_grammar(const Json& tools, ToolChoice choice, std::string_view named, bool parallel, std::string_view prompt_tail) const = 0;
};

// Messages as a template can take them: arguments of earlier calls become objects (or stay text, where the template wants text); what is not JSON is kept as text or
// wrapped, ids and types that are missing are added. A conversation with a bad call goes on.
Json normalize_messages(const Json& messages, std::string_view template_source);

}  // namespace ridge
