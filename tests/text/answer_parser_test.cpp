// Answers taken apart: every family's calls come back as they were made, however the text is cut, and templates are recognised by what they write themselves.
#include "text/answer_parser.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/files.h"
#include "text/answer_family.h"
#include "text/chat.h"
#include "text/grammar.h"
#include "text/schema.h"
#include "tokenizer_data.h"

namespace ridge {
namespace {

struct Answer {
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Answer&) const = default;
};

void add(Answer& answer, const AnswerDelta& delta) {
  answer.reasoning += delta.reasoning;
  answer.content += delta.content;
  for (const AnswerDelta::Call& call : delta.calls) {
    if (static_cast<size_t>(call.index) == answer.calls.size()) {
      EXPECT_FALSE(call.name.empty());
      answer.calls.emplace_back(call.name, "");
    } else {
      ASSERT_EQ(static_cast<size_t>(call.index), answer.calls.size() - 1);
      EXPECT_TRUE(call.name.empty());
    }
    answer.calls.back().second += call.arguments;
  }
}

Answer parse(const AnswerFormat& format, std::string_view text, const Json& tools, std::string_view prompt_tail = "", std::mt19937* cuts = nullptr, bool with_tools = true) {
  const std::unique_ptr<AnswerParser> parser = format.parser(prompt_tail, with_tools, tools);
  Answer out;
  while (!text.empty()) {
    const size_t n = cuts == nullptr ? text.size() : std::min<size_t>(text.size(), 1 + (*cuts)() % (1 + (*cuts)() % 12));
    add(out, parser->push(text.substr(0, n)));
    text.remove_prefix(n);
  }
  add(out, parser->finish());
  EXPECT_EQ(static_cast<int>(out.calls.size()), parser->n_calls());
  return out;
}

Answer parse_in_any_pieces(const AnswerFormat& format, std::string_view text, const Json& tools, std::string_view prompt_tail = "") {
  const Answer whole = parse(format, text, tools, prompt_tail);
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 cuts(seed);
    const Answer pieces = parse(format, text, tools, prompt_tail, &cuts);
    EXPECT_EQ(pieces.content, whole.content) << format.name() << " seed " << seed << ": " << text;
    EXPECT_EQ(pieces.reasoning, whole.reasoning) << format.name() << " seed " << seed << ": " << text;
    EXPECT_EQ(pieces.calls, whole.calls) << format.name() << " seed " << seed << ": " << text;
  }
  return whole;
}

const Json kTools = Json::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "description": "Current weather in a place", "parameters": {"type": "object", "properties": {
    "city": {"type": "string", "description": "City name", "minLength": 1, "maxLength": 20}, "unit": {"type": "string", "description": "Unit", "enum": ["c", "f"]}, "days": {"type": "integer", "description": "How many", "minimum": 1, "maximum": 14}}, "required": ["city"]}}},
  {"type": "function", "function": {"name": "search", "description": "Search", "parameters": {"type": "object", "properties": {
    "query": {"description": "What", "type": "string", "maxLength": 24}, "deep": {"description": "Thoroughly", "type": "boolean"}, "tags": {"description": "Tags", "type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 2},
    "near": {"description": "Where", "type": "object", "properties": {"lat": {"description": "Latitude", "type": "number", "minimum": -90, "maximum": 90}}, "required": ["lat"]}}, "required": ["query", "deep"]}}},
  {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
])");

Json parameters_of(const std::string& name) {
  for (const Json& tool : kTools) if (tool["function"]["name"] == name) return tool["function"]["parameters"];
  return nullptr;
}

TEST(AnswerParser, CallsOfEveryFamilyComeBackFromItsGrammar) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "built without xgrammar";
  const std::unique_ptr<Tokenizer> tokenizer = test::shipped("byte_level");
  const int n_vocab = tokenizer->n_vocab(), eos = tokenizer->find("<|endoftext|>").value_or(0);
  GrammarCompiler compiler(*tokenizer, n_vocab, {eos});
  for (const std::string& name : AnswerFormat::names()) {
    const std::shared_ptr<const AnswerFormat> format = AnswerFormat::named(name);
    for (const bool parallel : {false, true}) {
      const std::optional<std::string> grammar = format->tool_grammar(kTools, ToolChoice::required, "", parallel, "");
      ASSERT_TRUE(grammar);
      const auto compiled = compiler.gbnf(*grammar);
      for (unsigned seed = 0; seed < 6; ++seed) {
        std::mt19937 random(seed);
        const std::shared_ptr<TokenFilter> filter = compiler.start(compiled, 40 + static_cast<int>(seed) * 20);
        std::string text;
        for (int i = 0; i < 600 && !filter->done(); ++i) {
          std::vector<uint32_t> mask((static_cast<size_t>(n_vocab) + 31) / 32, ~0u);
          (void)filter->restrict(mask);
          std::vector<int32_t> allowed;
          for (int32_t id = 0; id < n_vocab; ++id) if (mask[id / 32] >> (id % 32) & 1) allowed.push_back(id);
          ASSERT_FALSE(allowed.empty()) << name << ": " << text;
          const int32_t token = allowed[random() % allowed.size()];
          filter->accept(token);
          if (token != eos) text += tokenizer->token_bytes(token);
        }
        if (!filter->done()) continue;               // the thought may be long
        const Answer answer = parse_in_any_pieces(*format, text, kTools);
        ASSERT_FALSE(answer.calls.empty()) << name << ": " << text;
        if (!parallel) EXPECT_EQ(answer.calls.size(), 1u) << name << ": " << text;
        EXPECT_EQ(answer.content, "") << name << ": " << text;
        for (const auto& [called, arguments] : answer.calls) {
          const Json parameters = parameters_of(called);
          ASSERT_FALSE(parameters.is_null()) << name << " called " << called << ": " << text;
          const Json value = Json::parse(arguments, nullptr, false);
          ASSERT_TRUE(value.is_object()) << name << ": " << arguments << "\nfrom " << text;
          EXPECT_TRUE(Schema(parameters, "parameters").fits(value, parameters)) << name << ": " << arguments << "\nfrom " << text;
        }
      }
    }
  }
}

TEST(AnswerParser, ANamedToolIsTheOnlyOneThatCanBeCalled) {
  const std::optional<std::string> grammar = AnswerFormat::named("hermes")->tool_grammar(kTools, ToolChoice::named, "now", false, "");
  ASSERT_TRUE(grammar);
  EXPECT_NE(grammar->find("now"), std::string::npos);
  EXPECT_EQ(grammar->find("get_weather"), std::string::npos);
  EXPECT_THROW((void)AnswerFormat::named("hermes")->tool_grammar(kTools, ToolChoice::named, "nobody", false, ""), Error);
}

TEST(AnswerParser, ThoughtContentAndCallsAreToldApart) {
  const auto format = AnswerFormat::named("hermes");
  const Answer answer = parse_in_any_pieces(*format, "<think>\nThe user wants < weather.\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"O\\\"slo}\"}}\n</tool_call>\n"
                                                     "<tool_call>\n{\"arguments\": {\"a\": [1, {\"b\": 2}]}, \"name\": \"search\"}\n</tool_call>", kTools);
  EXPECT_EQ(answer.reasoning, "The user wants < weather.");
  EXPECT_EQ(answer.content, "Let me look.");
  ASSERT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.calls[0], (std::pair<std::string, std::string>{"get_weather", "{\"city\": \"O\\\"slo}\"}"}));
  EXPECT_EQ(answer.calls[1], (std::pair<std::string, std::string>{"search", "{\"a\": [1, {\"b\": 2}]}"}));
}

TEST(AnswerParser, AThoughtThatThePromptOpenedGoesOn) {
  const auto format = AnswerFormat::named("hermes");
  const Answer answer = parse_in_any_pieces(*format, "Hm.\n</think>\n\nYes.", kTools, "<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(answer.reasoning, "Hm.");
  EXPECT_EQ(answer.content, "Yes.");
  const Answer over = parse_in_any_pieces(*format, "Yes.", kTools, "<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(over.reasoning, "");
  EXPECT_EQ(over.content, "Yes.");
}

TEST(AnswerParser, WhatIsNoCallIsContent) {
  const auto format = AnswerFormat::named("hermes");
  for (const std::string text : {"<tool_call>\nI would call get_weather.\n</tool_call>", "<tool_call>{\"nam\": 3}</tool_call>", "<tool_call>", "a < b and <tool", "{\"name\": \"x\"}", "<tool_call>[1, 2]"}) {
    const Answer answer = parse_in_any_pieces(*format, text, kTools);
    EXPECT_EQ(answer.content, text);
    EXPECT_TRUE(answer.calls.empty()) << text;
  }
  // Without tools nothing is looked for.
  const Answer plain = parse(*format, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", nullptr, "", nullptr, false);
  EXPECT_TRUE(plain.calls.empty());
}

TEST(AnswerParser, PlainTextIsUntouched) {
  const auto format = AnswerFormat::for_template("{{ messages[0].content }}");
  EXPECT_EQ(format->name(), "plain");
  const std::string text = "  \n Leading and trailing space \n\n";
  EXPECT_EQ(parse(*format, text, nullptr, "", nullptr, false).content, text);
}

TEST(AnswerParser, SpellingsOfModelsAreForgiven) {
  struct Case { const char *family, *text, *name, *arguments; };
  const Case cases[] = {
      {"hermes", "<tool_call>{\"name\":\"now\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>", "now", "{\"a\": 1}"},
      {"hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}\n</tool_call>", "now", "{\"a\": 1}"},
      {"llama3", "<|python_tag|>{\"name\": \"now\", \"parameters\": {\"a\": 1}}", "now", "{\"a\": 1}"},
      {"llama3", "{\"type\": \"function\", \"name\": \"now\", \"parameters\": {\"a\": 1}}", "now", "{\"a\": 1}"},
      {"mistral", "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {\"a\": 1}, \"id\": \"abcdef123\"}]", "now", "{\"a\": 1}"},
      {"mistral_args", "[TOOL_CALLS]now[ARGS]{\"a\": 1}", "now", "{\"a\": 1}"},
      {"mistral_call_id", "[TOOL_CALLS]now[CALL_ID]abcdef123[ARGS]{\"a\": 1}", "now", "{\"a\": 1}"},
      {"deepseek_r1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "now", "{\"a\": 1}"},
      {"kimi", "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_calls_section_end|>", "now", "{\"a\": 1}"},
      {"glm", "<tool_call>now\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", "now", "{\"a\": 1}"},
      {"qwen3_coder", "<tool_call>\n<function=now>\n<parameter=code>\nif a < b:\n  print(\"</x>\")\n\n</parameter>\n</function>\n</tool_call>", "now", "{\"code\": \"if a < b:\\n  print(\\\"</x>\\\")\\n\"}"},
      {"lfm2", "<|tool_call_start|>[now(a=1, b='it\\'s', c=[True, None], d={'x': 2.5})]<|tool_call_end|>", "now", "{\"a\":1,\"b\":\"it's\",\"c\":[true,null],\"d\":{\"x\":2.5}}"},
      {"gemma", "<|tool_call>call:now{a:1,b:<|\"|>x, {y}<|\"|>,c:{d:[true]}}<tool_call|>", "now", "{\"a\":1,\"b\":\"x, {y}\",\"c\":{\"d\":[true]}}"},
      {"minicpm", "<function name=\"now\"><param name=\"a\"><![CDATA[x < y]]></param></function>", "now", "{\"a\": \"x < y\"}"},
      {"gpt_oss", "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\"a\": 1}<|call|>", "now", "{\"a\": 1}"},
      {"functionary_v3_1", "<function=now>{\"a\": 1}</function>", "now", "{\"a\": 1}"},
  };
  for (const Case& c : cases) {
    const Answer answer = parse_in_any_pieces(*AnswerFormat::named(c.family), c.text, nullptr);
    ASSERT_EQ(answer.calls.size(), 1u) << c.family << ": " << c.text << "\ncontent: " << answer.content;
    EXPECT_EQ(answer.calls[0].first, c.name) << c.family;
    EXPECT_EQ(answer.calls[0].second, c.arguments) << c.family;
    EXPECT_EQ(answer.content, "") << c.family;
  }
}

TEST(AnswerParser, ChannelsOfHarmonyAreToldApart) {
  const Answer answer = parse_in_any_pieces(*AnswerFormat::named("gpt_oss"), "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>", nullptr, "<|start|>assistant");
  EXPECT_EQ(answer.reasoning, "Think.");
  EXPECT_EQ(answer.content, "Hello!");
}

TEST(AnswerParser, RandomTextNeverDependsOnItsPieces) {
  const std::vector<std::string> pieces = {"<", ">", "{", "}", "[", "]", "\"", "name", "arguments", ":", ",", " ", "\n", "a", "1", "</", "|", "\\", "é", "(", ")", "=", "'"};
  for (const std::string& name : AnswerFormat::names()) {
    const auto format = AnswerFormat::named(name);
    const AnswerFamily* family = nullptr;
    for (const AnswerFamily& f : answer_families()) if (f.name == name) family = &f;
    std::vector<std::string> words = pieces;
    for (const std::string* part : {&family->section_begin, &family->section_end, &family->call_begin, &family->call_end, &family->name_end, &family->key_begin, &family->key_end, &family->value_begin, &family->value_end,
                                    &family->reasoning_begin, &family->reasoning_end}) {
      if (!part->empty()) words.insert(words.end(), 3, *part);
    }
    for (unsigned seed = 0; seed < 40; ++seed) {
      std::mt19937 random(seed);
      std::string text;
      for (unsigned i = 0, n = 3 + random() % 40; i < n; ++i) text += words[random() % words.size()];
      (void)parse_in_any_pieces(*format, text, kTools);
    }
  }
}

TEST(Templates, WhatTheyWriteOfACallIsReadBack) {
  const std::string folder = RIDGE_SOURCE_DIR "/../shared/templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no ../shared/templates";
  const Json call = Json::parse(R"([{"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo", "unit": "c"}}}])");
  int n_read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = read_file(entry.path().string());
    const auto format = AnswerFormat::for_template(source);
    std::string prompt, whole;
    try {
      const ChatTemplate chat({.template_source = source, .bos_token = "<s>", .eos_token = "</s>"}, entry.path().filename().string());
      const Json user = {{{"role", "user"}, {"content", "Weather in Oslo?"}}};
      Json with_call = user;
      with_call.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", call}});
      prompt = chat.render(normalize_messages(user, source), true, {{"tools", kTools}, {"functions", kTools}});
      whole = chat.render(normalize_messages(with_call, source), false, {{"tools", kTools}, {"functions", kTools}});
    } catch (const Error&) {
      continue;                              // it has no tools, or wants more than it was given
    }
    size_t same = 0;
    while (same < std::min(prompt.size(), whole.size()) && prompt[same] == whole[same]) ++same;
    if (const size_t marker = whole.rfind('<', same); marker != std::string::npos && same - marker < 16 && whole.find('>', marker) >= same) same = marker;      // not inside one
    std::string text = whole.substr(same);
    const size_t name = text.find("get_weather");
    if (name == std::string::npos) continue;         // it leaves calls of the history out
    // A prompt may end with a thought that the history does not have.
    const std::string tail = prompt.substr(0, same);
    if (format->has_tools() && !format->reasoning_end().empty()) {
      if (const size_t end = text.find(format->reasoning_end()); end < name) text = text.substr(end + format->reasoning_end().size());
    }
    const Answer answer = parse_in_any_pieces(*format, text, kTools, tail.ends_with(">>>") ? ">>>" : "");
    EXPECT_GE(answer.calls.size(), 1u) << entry.path().filename() << " as " << format->name() << ": " << text;
    if (answer.calls.empty()) continue;
    EXPECT_EQ(answer.calls[0].first, "get_weather") << entry.path().filename();
    EXPECT_EQ(Json::parse(answer.calls[0].second, nullptr, false), Json({{"city", "Oslo"}, {"unit", "c"}})) << entry.path().filename() << " as " << format->name() << ": " << text;
    ++n_read;
  }
  EXPECT_GE(n_read, 40);
}

TEST(Messages, BadCallsOfTheHistoryDoNotBreakATemplate) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{not json"}}, {"function": {"name": "g", "arguments": ""}}, {"function": {"name": "h"}}, 5]},
    {"role": "tool", "tool_call_id": "x", "content": "ok"}, {"role": "assistant", "content": null, "tool_calls": []}])");
  const Json out = normalize_messages(messages, "{{ tool_call.function.arguments | tojson }}");
  ASSERT_EQ(out.size(), 4u);
  EXPECT_EQ(out[1]["content"], "");
  ASSERT_EQ(out[1]["tool_calls"].size(), 3u);
  EXPECT_EQ(out[1]["tool_calls"][0]["function"]["arguments"], Json({{"_raw", "{not json"}}));
  EXPECT_EQ(out[1]["tool_calls"][1]["function"]["arguments"], Json::object());
  EXPECT_EQ(out[1]["tool_calls"][2]["function"]["arguments"], Json::object());
  EXPECT_FALSE(out[3].contains("tool_calls"));
  const Json text = normalize_messages(messages, "{{ '>>>' + tool_call['function']['name'] + '\n' + tool_call['function']['arguments'] }}");
  EXPECT_TRUE(text[1]["tool_calls"][0]["function"]["arguments"].is_string());
}

}  // namespace
}  // namespace ridge
