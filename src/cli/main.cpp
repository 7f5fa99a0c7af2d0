// `ridge`: parses the command line and runs one command. Every failure that is not a bug ends here as one line on stderr and exit code 1.
#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/progress.h"

namespace {

constexpr const char* kExamples = R"(
Examples:
  ridge run                                      chat with a small model (fetched on first use, 93 MB)
  ridge run "What is the capital of France?"     one answer
  ridge run ./my-model.gguf                      chat with a model of yours: a .gguf file, a folder, or org/name
  ridge serve ./my-model.gguf                    serve it to many: the OpenAI API, and a page to chat
  ridge pull Qwen/Qwen3-0.6B                     fetch a model from the Hugging Face Hub
  ridge inspect ./my-model.gguf                  what is in it, and does it fit this machine?
  ridge bench ./my-model.gguf                    how fast is it here, and how near to the limit?
  ridge doctor                                   what this machine can do

`ridge COMMAND --help` explains a command and its options.)";

// Levenshtein's distance, for "did you mean".
int edit_distance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = int(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = int(i);
    for (size_t j = 1; j <= b.size(); ++j) diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
  }
  return row[b.size()];
}

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  int least = std::max(1, int(word.size()) / 3) + 1;
  for (const std::string& k : known) {
    const int distance = k.starts_with(word) && word.size() >= 2 ? 0 : edit_distance(word, k);
    if (distance < least) least = distance, best = k;
  }
  return best;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(sub->get_name());
  return names;
}

const CLI::App* chosen_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return command;
}

std::string full_name(const CLI::App* command) {
  return command->get_parent() ? full_name(command->get_parent()) + " " + command->get_name() : "ridge";
}

// What the parser did not like, with the nearest thing it knows.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = chosen_command(app);
  std::string message = error.what();
  for (const std::string& extra : app.remaining(true)) {
    if (extra.starts_with("-")) {
      std::vector<std::string> flags;
      for (const CLI::App* level : {command, &app})
        for (const CLI::Option* option : level->get_options())
          for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
      const std::string flag = extra.substr(0, extra.find('='));
      const std::string hint = nearest(flag, flags);
      message = fmt::format("unknown option {}{}", flag, hint.empty() ? "" : fmt::format("; did you mean {}?", hint));
    } else {
      message = fmt::format("unexpected argument '{}'", extra);
    }
    break;
  }
  return fmt::format("{} (see `{} --help`)", message, full_name(command));
}

int run(int argc, char** argv) {
  using namespace ridge;
  CLI::App app{"Ridgeline: runs language models on your own machine.", "ridge"};
  app.footer(kExamples);
  app.set_version_flag("--version", "ridge " RIDGE_VERSION, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(1);
  bool verbose = false, quiet = false;
  app.add_flag("-v,--verbose", verbose, "Say more about what is going on");
  app.add_flag("-q,--quiet", quiet, "Say nothing but errors");
  app.parse_complete_callback([&] {
    if (verbose) set_log_level(LogLevel::debug);
    if (quiet) set_log_level(LogLevel::error), silence_progress();
  });
  app.fallthrough();
  for (auto* add : {add_run, add_serve, add_pull, add_list, add_rm, add_inspect, add_bench, add_eval, add_quantize, add_convert, add_tokenize, add_template, add_doctor, add_completion}) add(app);

  if (argc == 1) {
    fmt::print("{}", app.help());
    return 0;
  }
  if (argv[1][0] != '-') {
    const auto names = command_names(app);
    if (std::find(names.begin(), names.end(), argv[1]) == names.end()) {
      const std::string hint = nearest(argv[1], names);
      fail("unknown command '{}'{}", argv[1],
           hint.empty() ? fmt::format("; the commands are {}. To ask a model: ridge run \"{}\"", fmt::join(names, ", "), argv[1]) : fmt::format("; did you mean `ridge {}`?", hint));
    }
  }
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "-sys") == 0) argv[i] = const_cast<char*>("--system");        // as llama.cpp spells it; short flags have one letter here
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", chosen_command(app)->help(chosen_command(app)->get_parent() ? full_name(chosen_command(app)->get_parent()) : ""));
  } catch (const CLI::CallForVersion& e) {
    fmt::print("{}\n", e.what());
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "ridge: {}\n", explain(app, e));
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  try {
    const int code = run(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) ridge::fail("cannot write to standard output: {}", std::strerror(errno));
    return code;
  } catch (const ridge::Error& e) {
    std::fflush(stdout);
    fmt::print(stderr, "ridge: {}\n", e.what());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "ridge: out of memory; a smaller --ctx-size or a smaller model needs less\n");
  } catch (const std::exception& e) {
    fmt::print(stderr, "ridge: unexpected: {}\n", e.what());
  }
  return 1;
}
