// What a request asks for, whichever API it came through: every API's body is parsed into one of these, so that the same wish gives the same tokens everywhere.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "sequence/sampling_params.h"
#include "text/answer_parser.h"

namespace ridge {

// The form that an answer must have.
struct Constraint {
  enum class Kind : uint8_t { none, json_object, json_schema, regex, choice, gbnf };
  Kind kind = Kind::none;
  Json value;                                // the schema; a string; a list of strings
  std::string field;                         // that asked for it, for messages
};

struct Job {
  SamplingParams params;
  int n = 1, best_of = 1;                    // best_of answers are made, the n likeliest given
  bool stream = false, include_usage = false, continuous_usage = false;
  int n_prompt_logprobs = -1;
  Constraint constraint;
  std::string cache_salt, user;
  std::string adapter;                       // the model that was asked for, where it is an adapter over the one served
  int priority = 0;
  bool skip_special_tokens = true;           // in the text of completions; chats need them written out to be taken apart
  bool include_stop = false;                 // the stop string is part of the answer
  bool return_token_ids = false;
};

struct ChatJob : Job {
  Json messages = Json::array();             // as OpenAI has them, checked: roles are strings, contents strings, null or lists of text parts
  Json tools = Json::array();                // as OpenAI has them, checked
  ToolChoice tool_choice = ToolChoice::automatic;
  std::string tool_name;                     // with ToolChoice::named
  bool parallel_tool_calls = true;
  Json template_variables = Json::object();
  bool add_generation_prompt = true, continue_final_message = false;
  std::optional<bool> split_reasoning;       // false: thoughts stay in the content as they were written; none: as the server was told
  bool include_reasoning = true;             // false: thoughts are made and left out
  int thinking_budget = -1;                  // tokens of thought; -1: no limit
};

struct Prompt {
  std::string text;
  std::optional<std::vector<int32_t>> tokens;      // instead of the text
};

struct CompletionJob : Job {
  std::vector<Prompt> prompts;
  bool echo = false;
  std::optional<std::string> suffix;
  bool add_special_tokens = true;
};

}  // namespace ridge
