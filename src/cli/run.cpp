// `ridge run [MODEL] [PROMPT]`: one answer, or a chat.
#include <iostream>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/interactive.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/sampling_flags.h"

namespace ridge {
namespace {

struct RunFlags {
  std::vector<std::string> arguments;
  std::string model, prompt, file, system, system_file;
  bool raw = false, no_stream = false, offline = false, no_stats = false, think = false, no_think = false;
  ModelFlags how;
  SamplingFlags sampling;
};

// Which of the arguments is the model: of two the first; one alone is the prompt unless it names a model.
void sort_arguments(RunFlags& f) {
  for (size_t i = 0; i < f.arguments.size(); ++i) {
    const bool is_model = f.model.empty() && i == 0 && (f.arguments.size() > 1 || looks_like_model(f.arguments[0]));
    if (is_model) f.model = f.arguments[i];
    else if (f.prompt.empty()) f.prompt = f.arguments[i];
    else fail("unexpected argument '{}': put a prompt of several words in quotes", f.arguments[i]);
  }
}

std::string checked_text(std::string text, const std::string& where) {
  if (utf8::is_valid(text)) return text;
  size_t at = 0;
  while (at < text.size() && utf8::decode_one(std::string_view(text).substr(at)).valid) at += size_t(utf8::decode_one(std::string_view(text).substr(at)).n_bytes);
  fail("{} is not valid UTF-8 (byte {} is 0x{:02x}); convert it first, for example with iconv", where, at, static_cast<unsigned char>(text[at]));
}

std::string read_stdin() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

// The prompt from the command line, a file and standard input; nothing when there is to be a chat.
std::optional<std::string> find_prompt(const RunFlags& f) {
  std::string text = checked_text(f.prompt, "the prompt");
  const bool from_stdin = f.file == "-" || (f.file.empty() && f.prompt.empty() && !stdin_is_terminal());
  if (f.file.empty() && !from_stdin) return f.prompt.empty() ? std::nullopt : std::optional(text);
  std::string more = from_stdin ? checked_text(read_stdin(), "standard input") : checked_text(read_file(f.file), f.file);
  if (!f.raw && more.ends_with('\n')) more.pop_back();
  text += (text.empty() ? "" : "\n\n") + more;
  if (text.empty()) fail("the prompt is empty: {} has no text", from_stdin ? "standard input" : f.file);
  return text;
}

void run(RunFlags& f, bool quiet) {
  sort_arguments(f);
  const auto prompt = find_prompt(f);
  if (!f.system_file.empty()) f.system = read_file(f.system_file);
  LoadedModel model = load_for_text(resolve_model(f.model, f.offline), f.how);
  ChatOptions options{.params = sampling_params(f.sampling, model.checkpoint.generation_config, *model.tokenizer), .system = checked_text(f.system, "the system message"), .raw = f.raw};
  if (f.think || f.no_think) options.template_variables["enable_thinking"] = f.think;
  if (!options.raw && !can_chat(model)) {
    options.raw = true;
    if (!quiet) fmt::print(stderr, "{} has no chat template: the text is continued as it stands (as with --raw).\n", model.checkpoint.name);
  }
  ChatSession session(model, options);
  if (!prompt) return chat_interactively(model, session, !f.no_stream);

  CatchInterrupt interrupt;
  AnswerPrinter printer(!f.no_stream);
  const Answer answer = session.ask(*prompt, std::ref(printer), &CatchInterrupt::flag());
  printer.end();
  const std::string note = ending_note(model, answer);
  if (!note.empty()) fmt::print(stderr, "{}\n", note);
  if (!quiet && !f.no_stats) fmt::print(stderr, "[{}]\n", speed_line(model, answer));
}

}  // namespace

void add_run(CLI::App& app) {
  auto* sub = app.add_subcommand("run", "Ask a model, or chat with it");
  auto f = std::make_shared<RunFlags>();
  sub->add_option("model_and_prompt", f->arguments, "[MODEL] [PROMPT]: a model (folder, .gguf file, smollm2, org/name) and a question. One argument that names no model is the question; none: a chat with smollm2")
      ->type_name("[MODEL] [PROMPT]");
  sub->add_option("-m,--model", f->model, "The model");
  sub->add_option("-p,--prompt", f->prompt, "The prompt");
  sub->add_option("-f,--file", f->file, "Read the prompt from a file (- is standard input); with a PROMPT, the file follows it");
  sub->add_option("--system,-S", f->system, "System message");
  sub->add_option("--system-file", f->system_file, "Read the system message from a file");
  sub->add_flag("--raw", f->raw, "Continue the text as it stands, without the chat template");
  sub->add_flag("--think", f->think, "For models that can: think before answering");
  sub->add_flag("--no-think", f->no_think, "For models that can: answer without thinking")->excludes("--think");
  sub->add_flag("--no-stream", f->no_stream, "Print an answer when it is complete");
  sub->add_flag("--no-stats", f->no_stats, "Do not print the line about speed");
  sub->add_flag("--offline", f->offline, "Fetch nothing");
  add_sampling_flags(*sub, f->sampling);
  add_model_flags(*sub, f->how);
  sub->footer(R"(
Examples:
  ridge run                                          chat with smollm2
  ridge run "Why is the sky blue?"                   one answer
  ridge run qwen.gguf "Hello!" --temp 0.7 -n 200
  ridge run Qwen/Qwen3-0.6B -f notes.txt "Summarise this:"
  echo "Translate to French: cheese" | ridge run
  ridge run stories.gguf --raw "Once upon a time" --temp 0)");
  sub->callback([f, &app] { run(*f, app.get_option("--quiet")->count() > 0); });
}

}  // namespace ridge
