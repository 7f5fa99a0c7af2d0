// An answer that has to call tools, as a grammar: a thought where the family thinks, then calls as the family writes them, with arguments by each tool's schema.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/answer_family.h"

namespace ridge {

struct CallsWanted {
  const Json& tools;                         // OpenAI's list
  std::string_view named;                    // this one alone; empty: any
  bool parallel = true;                      // several calls
  std::string thought_begin, thought_end;    // empty: no thought may be opened
  bool in_thought = false;                   // the prompt has opened it
  bool begun = false;                        // the prompt ends with the first call's beginning
};

std::string calls_grammar(const AnswerFamily& family, const CallsWanted& wanted);

}  // namespace ridge
