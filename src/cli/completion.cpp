// `ridge completion bash|zsh|fish`: a completion script made from the declared commands and flags, so that it cannot fall behind them.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"

namespace ridge {
namespace {

struct CommandFlags { std::string name, description; std::vector<std::pair<std::string, std::string>> flags; };

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<CommandFlags> commands_of(const CLI::App& app) {
  std::vector<CommandFlags> commands;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    CommandFlags command{sub->get_name(), first_line(sub->get_description()), {}};
    const auto add_flags = [&](const CLI::App* from) {
      for (const CLI::Option* option : from->get_options())
        for (const std::string& name : option->get_lnames()) command.flags.emplace_back("--" + name, first_line(option->get_description()));
    };
    add_flags(sub);
    for (const CLI::App* nested : sub->get_subcommands([](const CLI::App*) { return true; })) {
      command.flags.emplace_back(nested->get_name(), first_line(nested->get_description()));
      add_flags(nested);
    }
    commands.push_back(std::move(command));
  }
  return commands;
}

std::string joined_names(const std::vector<CommandFlags>& commands) {
  std::string names;
  for (const auto& c : commands) names += (names.empty() ? "" : " ") + c.name;
  return names;
}

std::string bash(const std::vector<CommandFlags>& commands) {
  std::string cases;
  for (const auto& c : commands) {
    std::string words;
    for (const auto& [flag, text] : c.flags) words += (words.empty() ? "" : " ") + flag;
    cases += fmt::format("    {}) words=\"{}\" ;;\n", c.name, words);
  }
  return fmt::format(R"sh(# bash completion for ridge:  source <(ridge completion bash)
_ridge() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
  if [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current") $(compgen -W "$(ridge list --names 2>/dev/null) ${{words//--[a-z0-9-]*/}}" -- "$current"))
  fi
}}
complete -o filenames -F _ridge ridge
)sh", joined_names(commands), cases);
}

std::string quoted(std::string text) {
  for (size_t i = 0; (i = text.find('\'', i)) != std::string::npos; i += 4) text.replace(i, 1, "'\\''");
  return text;
}

std::string zsh(const std::vector<CommandFlags>& commands) {
  std::string list, cases;
  for (const auto& c : commands) {
    list += fmt::format("    '{}:{}'\n", c.name, quoted(c.description));
    std::string words;
    for (const auto& [flag, text] : c.flags) words += fmt::format(" '{}:{}'", flag, quoted(text));
    cases += fmt::format("    {}) flags=({} ) ;;\n", c.name, words);
  }
  return fmt::format(R"sh(#compdef ridge
# zsh completion for ridge:  source <(ridge completion zsh)
_ridge() {{
  local -a commands flags
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe 'command' commands
    return
  fi
  case "${{words[2]}}" in
{}  esac
  if [[ "$PREFIX" == -* ]]; then
    _describe 'option' flags
  else
    _files
    compadd -- ${{(f)"$(ridge list --names 2>/dev/null)"}}
  fi
}}
compdef _ridge ridge
)sh", list, cases);
}

std::string fish(const std::vector<CommandFlags>& commands) {
  std::string out = "# fish completion for ridge:  ridge completion fish | source\n";
  for (const auto& c : commands) {
    out += fmt::format("complete -c ridge -n __fish_use_subcommand -f -a {} -d '{}'\n", c.name, quoted(c.description));
    for (const auto& [flag, text] : c.flags) {
      const bool option = flag.starts_with("--");
      out += fmt::format("complete -c ridge -n '__fish_seen_subcommand_from {}' {} {} -d '{}'\n", c.name, option ? "-l" : "-a", option ? flag.substr(2) : flag, quoted(text));
    }
  }
  return out + "complete -c ridge -n '__fish_seen_subcommand_from run inspect bench rm' -a '(ridge list --names 2>/dev/null)'\n";
}

}  // namespace

void add_completion(CLI::App& app) {
  auto* sub = app.add_subcommand("completion", "Print a completion script for your shell");
  auto shell = std::make_shared<std::string>();
  sub->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  sub->footer("\nExamples:\n  source <(ridge completion bash)\n  ridge completion fish | source");
  sub->callback([&app, shell] {
    const auto commands = commands_of(app);
    fmt::print("{}", *shell == "bash" ? bash(commands) : *shell == "zsh" ? zsh(commands) : fish(commands));
  });
}

}  // namespace ridge
