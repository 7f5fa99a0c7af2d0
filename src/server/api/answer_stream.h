// One answer in the making: the engine's events become text (never half a character), end at stop strings, and are taken apart into thoughts, content and tool calls.
// Whatever the API, and streamed or not, an answer goes through here.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "engine/stop_strings.h"
#include "text/answer_parser.h"
#include "text/tokenizer.h"

namespace ridge {

// What came of an answer with one event.
struct AnswerPiece {
  AnswerDelta delta;
  std::vector<Sampled> tokens;               // that were sampled, without the one that ended the answer
  bool empty() const { return delta.empty() && tokens.empty(); }
};

struct ToolCall { std::string id, name, arguments; };

// All of an answer so far.
struct Answer {
  int index = 0;                             // among the choices of the request
  int prompt = 0;                            // which of its prompts
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  std::vector<Sampled> tokens, prompt_logprobs;
  std::string finish;                        // empty while it goes on; "stop", "length", "tool_calls", "cancelled", "error"
  std::string stop, error;                   // the stop string that ended it; what went wrong
  int stop_token = -1;                       // the token that ended it
  int n_generated = 0, n_reasoning = 0;      // tokens; the ending one included
  std::vector<float> embedding;
  RequestTiming timing;
  double logprob = 0;                        // of all its tokens, where they were asked for
};

struct AnswerStreamOptions {
  std::vector<std::string> stop;
  bool skip_special_tokens = true, include_stop = false;
};

class AnswerStream {
 public:
  // `parser` may be null: all text is content then.
  AnswerStream(const Tokenizer& tokenizer, std::unique_ptr<AnswerParser> parser, AnswerStreamOptions options);
  // What became certain. After the end (answer().finish is set) nothing more comes of later events.
  AnswerPiece push(Event&& event);
  const Answer& answer() const { return answer_; }
  Answer& answer() { return answer_; }
  bool ended() const { return !answer_.finish.empty(); }

 private:
  void take(AnswerPiece& piece, std::string text);
  void add(AnswerPiece& piece, AnswerDelta delta);
  Detokenizer detokenizer_;
  StopStrings stops_;
  std::unique_ptr<AnswerParser> parser_;
  bool include_stop_;
  Answer answer_;
};

std::string random_id(std::string_view prefix);                // "call_1f0c..."

}  // namespace ridge
