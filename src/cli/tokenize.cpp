// `ridge tokenize`: text to ids and back, for a look at a tokenizer and for checking it against others.
#include <fmt/core.h>

#include <iostream>
#include <iterator>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "cli/command.h"
#include "engine/tokenizer_of.h"

namespace ridge {
namespace {

struct Options {
  std::string model, tokenizer, text;
  bool has_text = false, jsonl = false, add_special = false, decode = false, pieces = false;
};

std::unique_ptr<Tokenizer> open_tokenizer(const Options& o) {
  if (!o.tokenizer.empty()) return Tokenizer::from_json(read_file(o.tokenizer), o.tokenizer);
  return make_tokenizer(open_checkpoint(o.model, false));
}

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

std::vector<int32_t> parse_ids(const Json& list, std::string_view what) {
  if (!list.is_array()) fail("{}: ids must be a JSON list of whole numbers", what);
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) fail("{}: {} is not a token id", what, id.dump());
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

void print_pieces(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  fmt::print("{:>8}  {:<24}  {}\n", "id", "text", "token");
  for (const int32_t id : ids) {
    const std::string text = Json(tokenizer.token_bytes(id)).dump(-1, ' ', false, Json::error_handler_t::replace);
    fmt::print("{:>8}  {:<24}  {}{}\n", id, text, tokenizer.token_name(id), tokenizer.is_special(id) ? "  (special)" : "");
  }
}

void convert_lines(const Tokenizer& tokenizer, const Options& o) {
  std::string line;
  for (size_t n = 1; std::getline(std::cin, line); ++n) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string what = fmt::format("line {}", n);
    const Json in = parse_json(line, what);
    const char* key = o.decode ? "ids" : "text";
    if (!in.is_object() || !in.contains(key) || (!o.decode && !in["text"].is_string())) fail("{}: wants an object with \"{}\"", what, key);
    const auto ids = o.decode ? parse_ids(in["ids"], what) : tokenizer.encode(in["text"].get<std::string>(), o.add_special);
    fmt::print("{}", line_of(Json{{"ids", ids}, {"decoded", tokenizer.decode(ids)}}));
  }
}

void run(const Options& o) {
  if (o.model.empty() == o.tokenizer.empty()) fail("name one of --model and --tokenizer");
  const auto tokenizer = open_tokenizer(o);
  if (o.jsonl) return convert_lines(*tokenizer, o);
  const std::string input = o.has_text ? o.text : std::string(std::istreambuf_iterator<char>(std::cin), {});
  const auto ids = o.decode ? parse_ids(parse_json(input, "the ids"), "the ids") : tokenizer->encode(input, o.add_special);
  if (o.pieces) print_pieces(*tokenizer, ids);
  else if (o.decode) fmt::print("{}\n", tokenizer->decode(ids));
  else fmt::print("{}", line_of(Json(ids)));
}

}  // namespace

void add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, or ids into text");
  auto o = std::make_shared<Options>();
  auto* text = command->add_option("text", o->text, "The text (with --decode: a JSON list of ids); read from standard input when left out");
  command->add_option("-m,--model", o->model, "A model: a folder, a .gguf file or a name");
  command->add_option("--tokenizer", o->tokenizer, "A tokenizer.json file");
  command->add_flag("--jsonl", o->jsonl, "Each line of input is {\"text\": ...}, each line of output {\"ids\": ..., \"decoded\": ...}");
  command->add_flag("--add-special", o->add_special, "Add the tokens that begin and end a text (bos, eos)");
  command->add_flag("--decode", o->decode, "Ids in, text out");
  command->add_flag("--pieces", o->pieces, "Print a table of ids and the text of each");
  command->callback([o, text] {
    o->has_text = text->count() > 0;
    run(*o);
  });
}

}  // namespace ridge
