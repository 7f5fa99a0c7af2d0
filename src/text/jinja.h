// A Jinja engine for chat templates: parses once, renders with JSON values, as jinja2's sandbox does when Hugging Face transformers drives it
// (trim_blocks, lstrip_blocks, loop controls, the `generation` tag, tojson without HTML escapes, raise_exception, strftime_now).
// Templates are untrusted: steps, output bytes and nesting are bounded.
#pragma once
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace ridge {

class JinjaTemplate {
 public:
  // Throws Error naming `what` and the line.
  JinjaTemplate(std::string_view source, std::string_view what);
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;
  JinjaTemplate& operator=(JinjaTemplate&&) noexcept;

  // `variables`: an object; its members are the template's globals. Throws Error when the template raises, fails or passes a limit.
  // `now`: the local time that strftime_now formats; the clock's when absent.
  std::string render(const Json& variables, std::optional<std::tm> now = std::nullopt) const;

 private:
  struct Program;
  std::unique_ptr<const Program> program_;
};

}  // namespace ridge
