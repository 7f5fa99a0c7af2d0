// JinjaTemplate: parse once, run many times; errors get the template's name and the line.
#include <ctime>

#include "base/error.h"
#include "text/jinja.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"
#include "text/jinja/parser.h"

namespace ridge {

struct JinjaTemplate::Program {
  std::string what;
  jinja::Body body;
};

JinjaTemplate::JinjaTemplate(std::string_view source, std::string_view what) {
  if (source.size() > jinja::kMaxSourceBytes) fail("{}: the template has {} bytes, more than {}", what, source.size(), jinja::kMaxSourceBytes);
  try {
    program_ = std::make_unique<const Program>(Program{std::string(what), jinja::parse(source)});
  } catch (const jinja::SyntaxError& e) {
    fail("{}, line {}: {}", what, e.line, e.message);
  }
}

JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;

std::string JinjaTemplate::render(const Json& variables, std::optional<std::tm> now) const {
  if (!variables.is_object()) fail("{}: the variables of a template must be a JSON object, not {}", program_->what, variables.type_name());
  std::optional<jinja::Interpreter> interpreter;
  try {
    interpreter.emplace(variables, now);
    return interpreter->render(program_->body);
  } catch (const jinja::Raised& e) {
    fail("{}, line {}: {}", program_->what, interpreter ? interpreter->line() : 0, e.message);
  }
}

}  // namespace ridge
