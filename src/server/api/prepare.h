// From a job to what the engine is asked: the conversation rendered and tokenised, grammars compiled, and how the answer's text is to be taken apart.
// This is the slow part of a handler (milliseconds for long prompts and new grammars) and runs before anything is submitted.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/api/job.h"
#include "server/service.h"

namespace ridge {

struct Prepared {
  Request request;                           // without a filter; the seed is the first answer's
  std::string text;                          // of the prompt
  std::function<std::shared_ptr<TokenFilter>()> make_filter;       // one for every answer; may be empty
  std::function<std::unique_ptr<AnswerParser>()> make_parser;      // empty: the text is the content
  bool writes_specials = false;              // the parser needs special tokens in the text
};

std::string render_chat(const Service& service, const ChatJob& job);
std::vector<int32_t> tokenize(const Service& service, std::string_view text, bool add_special_tokens);      // refuses at once what cannot fit the context
// Its functions refer to the service and the job: for as long as those live.
Prepared prepare_chat(const Service& service, const ChatJob& job);
std::vector<Prepared> prepare_completions(const Service& service, const CompletionJob& job);

}  // namespace ridge
