// AnswerFormat from a family's description and the markers of thought that its template has.
#include <algorithm>

#include "base/error.h"
#include "text/answer_grammar.h"
#include "text/answer_parser.h"
#include "text/harmony_parser.h"
#include "text/stream_parser.h"

namespace ridge {

namespace {

struct ThoughtMarkers { std::string_view begin, end; };
constexpr ThoughtMarkers kThoughts[] = {{"<think>", "</think>"}, {"<|START_THINKING|>", "<|END_THINKING|>"}, {"[THINK]", "[/THINK]"}, {"<mm:think>", "</mm:think>"}, {"<seed:think>", "</seed:think>"},
    {"<thinking>", "</thinking>"}, {"Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"}};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

class FamilyFormat final : public AnswerFormat {
 public:
  FamilyFormat(const AnswerFamily& family, std::string begin, std::string end) : family_(family), begin_(std::move(begin)), end_(std::move(end)) {}

  std::string_view name() const override { return family_.name; }
  bool has_tools() const override { return family_.name != "plain"; }
  std::string reasoning_begin() const override { return begin_; }
  std::string reasoning_end() const override { return end_; }

  std::unique_ptr<AnswerParser> parser(std::string_view prompt_tail, bool with_tools, const Json& tools) const override {
    if (family_.form == CallForm::harmony) {
      const size_t start = prompt_tail.rfind("<|start|>assistant");
      return std::make_unique<HarmonyParser>(with_tools, start == prompt_tail.npos ? "" : std::string(prompt_tail.substr(start)));
    }
    const bool begun = !family_.call_begin.empty() && family_.form == CallForm::named && prompt_tail.ends_with(family_.call_begin);
    return std::make_unique<StreamParser>(family_, begin_, end_, in_thought(prompt_tail), begun ? family_.call_begin : "", with_tools, tools);
  }

  std::optional<std::string> tool_grammar(const Json& tools, ToolChoice choice, std::string_view named, bool parallel, std::string_view prompt_tail) const override {
    if (choice == ToolChoice::none || choice == ToolChoice::automatic) return std::nullopt;
    const bool opened = in_thought(prompt_tail);
    std::string_view tail = prompt_tail;
    while (!tail.empty() && std::isspace(static_cast<unsigned char>(tail.back()))) tail.remove_suffix(1);
    const bool over = !end_.empty() && tail.ends_with(end_);
    return calls_grammar(family_, {.tools = tools, .named = choice == ToolChoice::named ? named : "", .parallel = parallel, .thought_begin = over ? "" : begin_, .thought_end = end_, .in_thought = opened,
                                   .begun = family_.form == CallForm::named && !family_.call_begin.empty() && prompt_tail.ends_with(family_.call_begin)});
  }

 private:
  bool in_thought(std::string_view prompt_tail) const {
    if (begin_.empty()) return false;
    const size_t begin = prompt_tail.rfind(std::string_view(begin_).substr(0, begin_.find_last_not_of(" \n") + 1)), end = prompt_tail.rfind(end_);
    if (begin == prompt_tail.npos) return false;
    // Opened last, and nothing but white space since.
    const std::string_view after = prompt_tail.substr(begin + begin_.find_last_not_of(" \n") + 1);
    return (end == prompt_tail.npos || end < begin) && after.find_first_not_of(" \n\r\t") == after.npos;
  }

  const AnswerFamily& family_;
  std::string begin_, end_;
};

}  // namespace

std::shared_ptr<const AnswerFormat> AnswerFormat::for_template(std::string_view source) {
  const AnswerFamily* family = &answer_families().back();
  for (const AnswerFamily& candidate : answer_families()) {
    if (std::ranges::all_of(candidate.signs, [&](const std::string& sign) { return contains(source, sign); })) {
      family = &candidate;
      break;
    }
  }
  if (family->form == CallForm::harmony) return std::make_shared<FamilyFormat>(*family, family->reasoning_begin, family->reasoning_end);
  // Its own markers where the template has them, or what it has instead.
  if (!family->reasoning_end.empty() && contains(source, family->reasoning_end)) return std::make_shared<FamilyFormat>(*family, family->reasoning_begin, family->reasoning_end);
  for (const ThoughtMarkers& markers : kThoughts) {
    if (contains(source, markers.end)) return std::make_shared<FamilyFormat>(*family, std::string(markers.begin), std::string(markers.end));
  }
  const bool spelled_otherwise = family->name == "hunyuan" || family->name == "kimi_k3";
  return std::make_shared<FamilyFormat>(*family, spelled_otherwise ? family->reasoning_begin : "", spelled_otherwise ? family->reasoning_end : "");
}

std::shared_ptr<const AnswerFormat> AnswerFormat::named(std::string_view name) {
  for (const AnswerFamily& family : answer_families()) {
    if (family.name == name) return std::make_shared<FamilyFormat>(family, family.reasoning_begin, family.reasoning_end);
  }
  fail("There is no answer format '{}'; there are {}", name, fmt::join(names(), ", "));
}

std::vector<std::string> AnswerFormat::names() {
  std::vector<std::string> out;
  for (const AnswerFamily& family : answer_families()) if (std::ranges::find(out, family.name) == out.end()) out.push_back(family.name);
  return out;
}

}  // namespace ridge
