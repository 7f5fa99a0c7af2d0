// A conversation to a prompt: the model's own chat template, or ChatML where it has none.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/jinja.h"

namespace ridge {

// The special tokens a template may name, and the template itself (from tokenizer_config.json, chat_template.jinja or GGUF metadata).
struct ChatFormat {
  std::string template_source;      // empty: ChatML
  std::string bos_token, eos_token;
};

class ChatTemplate {
 public:
  ChatTemplate(ChatFormat format, std::string_view what);

  // `messages`: [{"role", "content", ...}] as OpenAI has them; content may be a list of parts and is passed as it is. `extra`: tools, documents,
  // enable_thinking and other variables, which win over the format's own; may be null. As in transformers, absent tools and documents are None.
  // When a template raises on a conversation with a system message, it is rendered once more without it: if that succeeds, the Error says that the
  // template does not take a system role. `now`: what strftime_now formats, the clock's when absent.
  std::string render(const Json& messages, bool add_generation_prompt, const Json& extra = nullptr, std::optional<std::tm> now = std::nullopt) const;
  const std::string& source() const { return format_.template_source; }
  bool is_fallback() const { return fallback_; }

 private:
  ChatFormat format_;
  bool fallback_;
  JinjaTemplate template_;
};

}  // namespace ridge
