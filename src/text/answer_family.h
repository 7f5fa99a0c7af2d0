// How a family of templates writes thoughts and tool calls: one description, from which the parser takes an answer apart and the grammar makes one. White space inside the
// texts below is what the grammar writes; the parser takes any amount of it, or none, in its place.
//
//   json      call_begin {"name": NAME, "arguments": {..}} call_end                 once or more
//   list      section_begin [{"name": NAME, "arguments": {..}}, ..] section_end     `name_is_key`: [{NAME: {..}}, ..]
//   named     section_begin (call_begin NAME name_end {..} call_end)+ section_end
//   tags      section_begin (call_begin NAME name_end (key_begin KEY key_end .. value_begin VALUE value_end)* call_end)+ section_end      values are raw text
//   python    section_begin [NAME(KEY=VALUE, ..), ..] section_end
//   brace     call_begin NAME {KEY:VALUE, ..} call_end                              texts between `quote`s, names bare
//   harmony   messages with channels: <|channel|>NAME to=functions.X<|message|>..
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

enum class CallForm : uint8_t { json, list, named, tags, python, brace, harmony };

struct AnswerFamily {
  std::string name;
  std::vector<std::string> signs = {};               // a template that contains all of these is of this family
  CallForm form = CallForm::json;
  std::string section_begin = {}, section_end = {}, call_begin = {}, call_end = {};
  std::string between = {};                          // calls
  std::string name_key = "name", arguments_key = "arguments";
  bool name_is_key = false, bare_object = false;     // bare_object: an answer that begins with { is a call
  std::string name_prefix = {};                      // "functions."
  bool numbered = false;                             // NAME:0, NAME:1
  std::string name_end = {};
  std::string key_begin = {}, key_end = {}, value_begin = {}, value_end = {};
  std::string value_begin_other = {};                // where a value that is no text is opened in another way; {type} is the schema's
  std::string closing_key = {};                      // value_end is followed by KEY and this
  std::string quote = "\"";
  std::vector<std::string> dropped = {};             // markers that are neither content nor calls
  std::string header_end = {};                       // an answer begins with a header up to this
  std::string reasoning_begin = {}, reasoning_end = {};      // of the family where a template is not at hand
};

const std::vector<AnswerFamily>& answer_families();  // in the order in which templates are tried; the last is `plain`

}  // namespace ridge
