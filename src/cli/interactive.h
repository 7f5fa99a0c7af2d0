// The chat at the terminal: lines in, answers out, commands that begin with a slash.
#pragma once
#include <string>

#include "cli/chat_session.h"

namespace ridge {

void chat_interactively(LoadedModel& model, ChatSession& session, bool stream);

// Writes an answer as it comes. On a terminal, control characters a model might produce are left out: they could do more than print.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(bool stream);
  void operator()(std::string_view piece);
  void end();                                          // what was held back, and a last newline

 private:
  bool stream_, terminal_;
  std::string held_;
  char last_ = '\n';
  void write(std::string_view text);
};

// "38 tokens, 61.2 tokens/s, first token after 0.12 s, 74 % of 18.3 GB/s", and what else is worth saying about how the answer ended.
std::string speed_line(LoadedModel& model, const Answer& answer);
std::string ending_note(LoadedModel& model, const Answer& answer);                   // empty for an answer that simply ended

}  // namespace ridge
