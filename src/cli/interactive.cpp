#include "cli/interactive.h"

#include <filesystem>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/bandwidth.h"
#include "engine/device.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "cli/sampling_flags.h"
#include "cli/trimmed.h"
#include "files/hub_cache.h"

namespace ridge {
namespace {

constexpr const char* kHelp = R"(  /regen              another answer to the last question
  /reset              forget the conversation
  /system [TEXT]      show or set the system message
  /set [NAME VALUE]   show or set a parameter: temp, top-k, top-p, min-p, repeat-penalty, seed, predict, ...
  /save FILE          write the conversation as JSON;  /load FILE reads it back
  /stats              speed and lengths so far
  /exit               leave (or Ctrl-D)
Several lines: end a line with \, or put the text between """ and """. Ctrl-C stops an answer, or drops the line.
)";

struct Totals { int n_answers = 0; int64_t n_prompt = 0, n_tokens = 0; double seconds_decoding = 0; std::string last; };

std::string history_file() {
  const std::string folder = CacheFolders::from_environment().ridge;
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  return ec ? "" : folder + "/history";
}

// One message, which may span lines.
LineEditor::Result read_message(LineEditor& editor, std::string& message) {
  std::string line;
  LineEditor::Result result = editor.read(line, ">>> ");
  if (result != LineEditor::Result::line) return result;
  message.clear();
  if (line.starts_with("\"\"\"")) {
    line.erase(0, 3);
    for (;;) {
      if (line.ends_with("\"\"\"")) {
        message += line.substr(0, line.size() - 3);
        return result;
      }
      message += line + "\n";
      if ((result = editor.read(line, "... ")) != LineEditor::Result::line) return result;
    }
  }
  while (line.ends_with('\\')) {
    message += line.substr(0, line.size() - 1) + "\n";
    if ((result = editor.read(line, "... ")) != LineEditor::Result::line) return result;
  }
  message += line;
  return result;
}

class Chat {
 public:
  Chat(LoadedModel& model, ChatSession& session, bool stream) : model_(model), session_(session), stream_(stream), editor_(history_file()) {}

  void run() {
    fmt::print("{} on {}. /help for commands, Ctrl-D to leave.\n", model_.checkpoint.name, model_.engine->backend().name());
    if (session_.raw()) fmt::print("The text you type is continued as it stands.\n");
    for (std::string message;;) {
      const auto result = read_message(editor_, message);
      if (result == LineEditor::Result::end) break;
      if (result == LineEditor::Result::interrupted || trimmed(message).empty()) continue;
      editor_.remember(message);
      try {
        if (trimmed(message).starts_with("/") && message.find('\n') == std::string::npos) {
          if (!command(trimmed(message))) return;
        } else if (!utf8::is_valid(message)) {
          fail("that was not valid UTF-8; is the terminal set to another encoding?");
        } else {
          answer([&](auto& printer) { return session_.ask(message, std::ref(printer), &CatchInterrupt::flag()); });
        }
      } catch (const Error& e) {
        fmt::print(stderr, "{}\n", e.what());
      }
      std::fflush(stdout);
    }
    fmt::print("\n");
  }

 private:
  template <class Ask>
  void answer(const Ask& ask) {
    CatchInterrupt::clear();
    AnswerPrinter printer(stream_);
    const Answer answer = ask(printer);
    printer.end();
    const Generation& g = answer.generation;
    totals_.n_answers += 1;
    totals_.n_prompt += g.n_prompt;
    totals_.n_tokens += int64_t(g.tokens.size());
    totals_.seconds_decoding += g.seconds_decoding;
    totals_.last = speed_line(model_, answer);
    const std::string note = ending_note(model_, answer);
    fmt::print(stderr, "{}[{}]\n", note.empty() ? "" : note + "\n", totals_.last);
    CatchInterrupt::clear();
  }

  // False: leave.
  bool command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space), rest = space == std::string::npos ? "" : trimmed(line.substr(space + 1));
    if (name == "/exit" || name == "/quit" || name == "/bye") return false;
    if (name == "/help" || name == "/?") {
      fmt::print("{}", kHelp);
    } else if (name == "/reset" || name == "/clear") {
      session_.reset();
      fmt::print("The conversation is forgotten.\n");
    } else if (name == "/regen") {
      answer([&](auto& printer) { return session_.regenerate(std::ref(printer), &CatchInterrupt::flag()); });
    } else if (name == "/system") {
      if (!rest.empty()) session_.set_system(rest);
      fmt::print("system: {}\n", session_.system().empty() ? "(the template's own)" : session_.system());
    } else if (name == "/set") {
      set(rest);
    } else if (name == "/save" || name == "/load") {
      if (rest.empty()) fail("{} needs a file name", name);
      if (name == "/save") session_.save(rest);
      const int n = name == "/load" ? session_.load(rest) : int(session_.messages().size());
      fmt::print("{} messages {} {}\n", n, name == "/save" ? "written to" : "read from", rest);
    } else if (name == "/stats") {
      stats();
    } else {
      fail("there is no command {}; /help lists them", name);
    }
    return true;
  }

  void set(const std::string& rest) {
    if (const size_t space = rest.find(' '); space != std::string::npos) set_sampling(session_.params(), rest.substr(0, space), trimmed(rest.substr(space + 1)));
    else if (!rest.empty()) fail("/set {} needs a value", rest);
    fmt::print("{}\n", describe_sampling(session_.params()));
  }

  void stats() const {
    fmt::print("{} answers, {} prompt tokens, {} generated, {:.1f} tokens/s on average\n", totals_.n_answers, totals_.n_prompt, totals_.n_tokens,
               totals_.seconds_decoding > 0 ? double(totals_.n_tokens - totals_.n_answers) / totals_.seconds_decoding : 0.0);
    if (!totals_.last.empty()) fmt::print("last: {}\n", totals_.last);
    fmt::print("context {} tokens, {} messages; loaded in {}\n", model_.engine->max_context(), session_.messages().size(), human_seconds(model_.load_seconds));
  }

  LoadedModel& model_;
  ChatSession& session_;
  bool stream_;
  LineEditor editor_;
  Totals totals_;
};

}  // namespace

AnswerPrinter::AnswerPrinter(bool stream) : stream_(stream), terminal_(stdout_is_terminal()) {}

void AnswerPrinter::operator()(std::string_view piece) {
  if (stream_) write(piece);
  else held_ += piece;
}

void AnswerPrinter::write(std::string_view text) {
  if (text.empty()) return;
  last_ = text.back();
  if (terminal_) {
    std::string safe;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      const bool c1 = c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;       // U+0080 to U+009F
      if (c1) ++i;
      else if (c >= 0x20 ? c != 0x7f : c == '\n' || c == '\t') safe += char(c);
    }
    std::fwrite(safe.data(), 1, safe.size(), stdout);
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  if (std::fflush(stdout) != 0) fail("cannot write to standard output: {}", std::strerror(errno));
}

void AnswerPrinter::end() {
  write(held_);
  if (last_ != '\n') write("\n");
}

std::string speed_line(LoadedModel& model, const Answer& answer) {
  const Generation& g = answer.generation;
  const double speed = g.decode_tokens_per_second();
  std::string line = fmt::format("{} tokens, {:.1f} tokens/s, first token after {}", g.tokens.size(), speed, human_seconds(g.seconds_to_first_token));
  Engine& engine = *model.engine;
  if (g.tokens.size() < 8 || engine.options().device == "ref") return line;
  const double bytes = double(engine.model().streamed_bytes()) + double(engine.kv().bytes_per_token()) * (g.n_prompt + double(g.tokens.size()) / 2);
  const int n_threads = engine.options().n_threads > 0 ? engine.options().n_threads : this_machine().n_usable;
  const double limit = engine.options().device == "cuda" ? measure_read_bandwidth_of("cuda", 0, 0, 0) : recent_read_bandwidth(n_threads);
  if (limit > 0) line += fmt::format(", {:.0f} % of {}/s", 100 * speed * bytes / limit, human_bytes(limit));
  return line;
}

std::string ending_note(LoadedModel& model, const Answer& answer) {
  std::string note;
  const int context = model.engine->max_context();
  if (answer.n_dropped_messages > 0)
    note = fmt::format("(The context of {} tokens is full: the oldest {} messages were left out. /reset starts afresh; --ctx-size makes room.)", context, answer.n_dropped_messages);
  if (answer.generation.finish == FinishReason::context) note += fmt::format("{}(The answer was cut: the context of {} tokens is full; --ctx-size makes room.)", note.empty() ? "" : "\n", context);
  if (answer.generation.finish == FinishReason::cancelled) note += fmt::format("{}(stopped)", note.empty() ? "" : "\n");
  return note;
}

void chat_interactively(LoadedModel& model, ChatSession& session, bool stream) {
  CatchInterrupt interrupt;
  Chat(model, session, stream).run();
}

}  // namespace ridge
