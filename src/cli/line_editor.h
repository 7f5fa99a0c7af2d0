// One line from the person at the terminal: with editing, history and UTF-8 through libedit where the build has it, else as the terminal gives it.
#pragma once
#include <memory>
#include <string>

namespace ridge {

class LineEditor {
 public:
  enum class Result { line, interrupted, end };        // interrupted: Ctrl-C, the line is dropped; end: Ctrl-D or end of file

  explicit LineEditor(std::string history_path);       // empty: no history is kept; reads and writes it, private to the user
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Result read(std::string& line, const std::string& prompt);
  void remember(const std::string& line);              // adds to the history

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ridge
