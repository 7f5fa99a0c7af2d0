// `ridge template`: what a chat template makes of a conversation, byte for byte, to look at or to compare.
#include <cstdio>
#include <ctime>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "cli/command.h"
#include "files/checkpoint.h"
#include "text/chat.h"

namespace ridge {
namespace {

struct TemplateFlags {
  std::string model, file, input, date;
};

// Noon of the day, so that a template which prints hours has something sensible.
std::optional<std::tm> parse_date(const std::string& text) {
  if (text.empty()) return std::nullopt;
  int year = 0, month = 0, day = 0, n_read = 0;
  const bool matched = std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &n_read) == 3 && n_read == static_cast<int>(text.size());
  if (!matched || year < 1900 || month < 1 || month > 12 || day < 1 || day > 31) fail("--date {}: expected YYYY-MM-DD", text);
  std::tm date{};
  date.tm_year = year - 1900;
  date.tm_mon = month - 1;
  date.tm_mday = day;
  date.tm_hour = 12;
  date.tm_isdst = -1;
  std::mktime(&date);                       // fills in the day of the week and of the year
  return date;
}

std::string text_member(const Json& input, const char* name, const std::string& otherwise) {
  if (!input.contains(name) || input[name].is_null()) return otherwise;
  if (!input[name].is_string()) fail("{} must be a string, not {}", name, input[name].type_name());
  return input[name].get<std::string>();
}

void run_template(const TemplateFlags& flags) {
  if (flags.model.empty() == flags.file.empty()) fail("give either --model or --template");
  const Json input = read_json_file(flags.input);
  if (!input.is_object() || !input.contains("messages")) fail("{}: expected an object with \"messages\"", flags.input);
  ChatFormat format;
  if (flags.file.empty()) {
    const Checkpoint checkpoint = open_checkpoint(flags.model, false);
    format = {.template_source = checkpoint.chat_template, .bos_token = checkpoint.bos_token, .eos_token = checkpoint.eos_token};
  } else {
    format.template_source = read_file(flags.file);
  }
  format.bos_token = text_member(input, "bos_token", format.bos_token);
  format.eos_token = text_member(input, "eos_token", format.eos_token);
  Json extra = Json::object();
  for (const char* name : {"tools", "documents"}) {
    if (input.contains(name)) extra[name] = input[name];
  }
  if (input.contains("kwargs") && !input["kwargs"].is_null()) {
    if (!input["kwargs"].is_object()) fail("{}: kwargs must be an object, not {}", flags.input, input["kwargs"].type_name());
    for (const auto& [name, value] : input["kwargs"].items()) extra[name] = value;
  }
  const Json generate = input.value("add_generation_prompt", Json(false));
  if (!generate.is_boolean()) fail("{}: add_generation_prompt must be true or false", flags.input);
  const ChatTemplate chat(std::move(format), flags.file.empty() ? "the chat template of " + flags.model : flags.file);
  const std::string prompt = chat.render(input["messages"], generate.get<bool>(), extra, parse_date(flags.date));
  if (std::fwrite(prompt.data(), 1, prompt.size(), stdout) != prompt.size() || std::fflush(stdout) != 0) fail("cannot write to standard output");
}

}  // namespace

void add_template(CLI::App& app) {
  auto flags = std::make_shared<TemplateFlags>();
  CLI::App* command = app.add_subcommand("template", "Print the prompt that a chat template makes of a conversation");
  command->add_option("--model", flags->model, "A folder, a .gguf file or a model's name: its chat template and special tokens");
  command->add_option("--template", flags->file, "A file with a Jinja chat template");
  command->add_option("--input", flags->input, "JSON: messages, tools, add_generation_prompt, kwargs, bos_token, eos_token")->required();
  command->add_option("--date", flags->date, "YYYY-MM-DD that the template sees as today");
  command->callback([flags] { run_template(*flags); });
}

}  // namespace ridge
