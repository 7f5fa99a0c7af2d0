// The variables a template sees are those transformers gives it; see apply_chat_template there.
#include "text/chat.h"

#include "base/error.h"

namespace ridge {
namespace {

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

bool is_system(const Json& message) { return message.is_object() && message.contains("role") && message["role"] == "system"; }

Json without_system(const Json& messages) {
  Json rest = Json::array();
  for (const Json& message : messages) {
    if (!is_system(message)) rest.push_back(message);
  }
  return rest;
}

}  // namespace

ChatTemplate::ChatTemplate(ChatFormat format, std::string_view what)
    : format_(std::move(format)),
      fallback_(format_.template_source.empty()),
      template_(fallback_ ? kChatMl : std::string_view(format_.template_source), fallback_ ? "the ChatML template" : what) {
  if (fallback_) format_.template_source = std::string(kChatMl);
}

std::string ChatTemplate::render(const Json& messages, bool add_generation_prompt, const Json& extra, std::optional<std::tm> now) const {
  if (!messages.is_array()) fail("messages must be a list of {{\"role\", \"content\"}}, not {}", messages.type_name());
  if (!extra.is_null() && !extra.is_object()) fail("the extra variables of a chat template must be an object, not {}", extra.type_name());
  Json variables = {{"messages", messages},           {"tools", nullptr},
                    {"documents", nullptr},           {"add_generation_prompt", add_generation_prompt},
                    {"bos_token", format_.bos_token}, {"eos_token", format_.eos_token}};
  if (extra.is_object()) {
    for (const auto& [name, value] : extra.items()) variables[name] = value;
  }
  try {
    return template_.render(variables, now);
  } catch (const Error& error) {
    const Json rest = without_system(messages);
    if (rest.size() == messages.size() || rest.empty()) throw;
    variables["messages"] = rest;
    try {
      template_.render(variables, now);
    } catch (const Error&) {
      throw error;                          // the system message was not what it minded
    }
    fail("{} (the template does not take a system message: leave it out, or put its text at the start of the first user message)", error.what());
  }
}

}  // namespace ridge
