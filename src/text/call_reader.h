// Reading tool calls out of text that is not whole yet. Every function looks at a text from a place on and says how it went: `more` means that what follows decides, so
// that nothing depends on where the text was cut.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/answer_family.h"

namespace ridge {

enum class Reading : uint8_t { good, more, bad };

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// White space in `pattern` stands for any amount of it in the text, none too; some may also come first. `at` is moved behind it.
Reading read_marker(std::string_view text, size_t& at, std::string_view pattern);

// Where a JSON value ends, character by character.
class JsonExtent {
 public:
  bool take(char c);                         // true: c belongs to the value; false: it ended before c
  bool ended() const { return ended_; }      // it ended with the last character
  bool broken() const { return broken_; }

 private:
  std::string nesting_;
  bool in_text_ = false, escaped_ = false, begun_ = false, ended_ = false, plain_ = false, broken_ = false;
};

// The beginning of a call: up to its arguments where they can be streamed, or all of it.
struct CallHead {
  std::string name;
  std::optional<std::string> arguments;      // whole already
  size_t end = 0;                            // of the head in the text
};
// {"name": .., "arguments": ..} from its brace on. `is_key`: {NAME: {..}}.
Reading read_json_head(CallHead& head, std::string_view text, size_t at, const AnswerFamily& family);
// NAME and what follows it.
Reading read_named_head(CallHead& head, std::string_view text, size_t at, const AnswerFamily& family);

struct WholeCall { std::string name, arguments; };
Reading read_python_calls(std::vector<WholeCall>& calls, std::string_view text, size_t& at);           // [f(a=1), g()]
Reading read_brace_call(WholeCall& call, std::string_view text, size_t& at, const std::string& quote); // f{a:1,b:<|"|>x<|"|>}

}  // namespace ridge
