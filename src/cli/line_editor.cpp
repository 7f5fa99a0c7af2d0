#include "cli/line_editor.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>

#include "cli/interrupt.h"

namespace ridge {
namespace {

// False: Ctrl-C. A look at the flag ten times a second, because a signal that comes just before read() does not interrupt it.
bool wait_for_key() {
  for (;;) {
    if (CatchInterrupt::raised()) return false;
    pollfd terminal{STDIN_FILENO, POLLIN, 0};
    if (::poll(&terminal, 1, 100) > 0) return true;
  }
}

}  // namespace
}  // namespace ridge

#ifdef RIDGE_WITH_EDITLINE
#include <histedit.h>

namespace ridge {

struct LineEditor::State {
  std::string prompt, history_path;
  EditLine* editor = nullptr;
  History* history = nullptr;
  bool interrupted = false;

  static State* of(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return static_cast<State*>(data);
  }
  static char* show_prompt(EditLine* editor) { return of(editor)->prompt.data(); }

  // One character from the terminal. Ctrl-C ends the line here; libedit's own reader would read on.
  static int read_character(EditLine* editor, wchar_t* out) {
    std::mbstate_t partial{};
    for (;;) {
      if (!wait_for_key()) {
        of(editor)->interrupted = true;
        return -1;
      }
      char byte = 0;
      const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return int(n);
      const size_t length = std::mbrtowc(out, &byte, 1, &partial);
      if (length == size_t(-2)) continue;                // a character of several bytes
      if (length == size_t(-1)) *out = L'?';
      if (length == 0) *out = L'\0';
      return 1;
    }
  }
};

LineEditor::LineEditor(std::string history_path) : state_(std::make_unique<State>()) {
  constexpr int kHistoryLines = 1000;
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
  state_->history_path = std::move(history_path);
  state_->editor = el_init("ridge", stdin, stdout, stderr);
  state_->history = history_init();
  HistEvent event;
  history(state_->history, &event, H_SETSIZE, kHistoryLines);
  history(state_->history, &event, H_SETUNIQUE, 1);
  if (!state_->history_path.empty()) history(state_->history, &event, H_LOAD, state_->history_path.c_str());
  el_set(state_->editor, EL_CLIENTDATA, state_.get());
  el_set(state_->editor, EL_PROMPT, &State::show_prompt);
  el_set(state_->editor, EL_EDITOR, "emacs");
  el_set(state_->editor, EL_HIST, history, state_->history);
  el_set(state_->editor, EL_GETCFN, &State::read_character);
  el_set(state_->editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(state_->editor, nullptr);                    // the user's ~/.editrc
}

LineEditor::~LineEditor() {
  history_end(state_->history);
  el_end(state_->editor);
}

LineEditor::Result LineEditor::read(std::string& line, const std::string& prompt) {
  state_->prompt = prompt;
  state_->interrupted = false;
  CatchInterrupt::clear();
  // What was typed while an answer came is still the terminal's: whole lines are pushed to the editor, and an end (Ctrl-D), which the editor would take for a
  // character of the line, is one.
  pollfd typed{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (::poll(&typed, 1, 0) == 1 && (typed.revents & POLLIN)) {
    char ahead[4096];
    const ssize_t n_ahead = ::read(STDIN_FILENO, ahead, sizeof ahead - 1);
    if (n_ahead == 0) return Result::end;
    ahead[n_ahead > 0 ? n_ahead : 0] = 0;
    if (n_ahead > 0) el_push(state_->editor, ahead);
  }
  int n = 0;
  const char* text = el_gets(state_->editor, &n);
  if (state_->interrupted) {
    CatchInterrupt::clear();
    el_set(state_->editor, EL_PREP_TERM, 0);
    el_reset(state_->editor);
    fmt::print("^C\n");
    std::fflush(stdout);
    return Result::interrupted;
  }
  if (!text || n <= 0) return Result::end;
  line.assign(text, size_t(n));
  if (line.ends_with('\n')) line.pop_back();
  return Result::line;
}

void LineEditor::remember(const std::string& line) {
  HistEvent event;
  history(state_->history, &event, H_ENTER, line.c_str());
  if (state_->history_path.empty()) return;
  history(state_->history, &event, H_SAVE, state_->history_path.c_str());
  ::chmod(state_->history_path.c_str(), 0600);
}

}  // namespace ridge

#else

namespace ridge {

struct LineEditor::State {};

LineEditor::LineEditor(std::string) : state_(std::make_unique<State>()) {}
LineEditor::~LineEditor() = default;
void LineEditor::remember(const std::string&) {}

LineEditor::Result LineEditor::read(std::string& line, const std::string& prompt) {
  CatchInterrupt::clear();
  fmt::print("{}", prompt);
  std::fflush(stdout);
  line.clear();
  for (;;) {
    if (!wait_for_key()) {
      CatchInterrupt::clear();
      fmt::print("\n");
      return Result::interrupted;
    }
    char byte = 0;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return line.empty() ? Result::end : Result::line;
    if (byte == '\n') return Result::line;
    line += byte;
  }
}

}  // namespace ridge

#endif
