#include "text/answer_grammar.h"

#include <memory>

#include "base/error.h"
#include "text/schema_grammar.h"

namespace ridge {

namespace {

constexpr int kMostTools = 256;
constexpr int kMostThought = 16384;          // characters, softly

// Text without the first two characters of `end` in a row, which is a little less than text without `end`.
Gbnf text_before(std::string_view end, GbnfRules& rules, std::string_view hint, int64_t max_chars) {
  const std::u32string marker = to_code_points(end);
  const CharSet all = CharSet{{0, 8}, {11, 31}}.negated();
  const CharSet first{{marker[0], marker[0]}};
  Gbnf piece = Gbnf::chars(all.without(first));
  if (marker.size() > 1) piece = Gbnf::either({piece, Gbnf::sequence({Gbnf::chars(first), Gbnf::chars(all.without(CharSet{{marker[0], marker[0]}, {marker[1], marker[1]}}))})});
  return rules.add(hint, Gbnf::repeat(piece, 0), max_chars);
}

const char* type_name(const Json& schema) {
  static constexpr const char* kNames[] = {"string", "integer", "number", "boolean", "object", "array", "null"};
  const Json type = schema.is_object() ? schema.value("type", Json()) : Json();
  for (const char* name : kNames) if (type == name) return name;
  return "object";
}

class CallsWriter {
 public:
  CallsWriter(const AnswerFamily& family, const CallsWanted& wanted) : family_(family), wanted_(wanted) {}

  std::string write() {
    std::vector<Gbnf> calls;
    if (!wanted_.tools.is_array() || wanted_.tools.empty()) fail("tool_choice asks for a call, but there are no tools");
    if (wanted_.tools.size() > kMostTools) fail("{} tools are too many to be forced; at most {} are taken", wanted_.tools.size(), kMostTools);
    for (const Json& tool : wanted_.tools) {
      const Json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
      if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) fail("A tool has no name: {}", tool.dump());
      const std::string name = function["name"];
      if (!wanted_.named.empty() && name != wanted_.named) continue;
      Json parameters = function.value("parameters", Json());
      if (parameters.is_null()) parameters = {{"type", "object"}, {"properties", Json::object()}};
      schemas_.push_back(std::make_unique<Schema>(parameters, fmt::format("The schema of tool '{}'", name)));
      calls.push_back(call(name, *schemas_.back()));
    }
    if (calls.empty()) fail("tool_choice names '{}', which is not among the tools", wanted_.named);
    Gbnf any = rules_.add("call", Gbnf::either(std::move(calls)));
    const Gbnf between = Gbnf::literal(family_.form == CallForm::list || family_.form == CallForm::python ? ", " : family_.between);
    Gbnf all = wanted_.parallel && family_.form != CallForm::harmony ? Gbnf::sequence({any, Gbnf::repeat(Gbnf::sequence({between, any}), 0, 15)}) : any;
    if (family_.form == CallForm::list || family_.form == CallForm::python) all = Gbnf::sequence({Gbnf::literal("["), std::move(all), Gbnf::literal("]")});
    all = Gbnf::sequence({Gbnf::literal(wanted_.begun ? "" : family_.section_begin), std::move(all), Gbnf::literal(family_.section_end)});
    if (!family_.header_end.empty()) all = Gbnf::sequence({Gbnf::literal(" to=" + (wanted_.named.empty() ? "tools" : std::string(wanted_.named)) + family_.header_end), std::move(all)});
    return rules_.write(Gbnf::sequence({thought(), std::move(all)}), "The grammar of the tools");
  }

 private:
  Gbnf thought() {
    if (family_.form == CallForm::harmony) {
      const Gbnf text = text_before("<|end|>", rules_, "thought", kMostThought);
      return Gbnf::optional(Gbnf::sequence({Gbnf::literal("<|channel|>analysis<|message|>"), text, Gbnf::literal("<|end|><|start|>assistant")}));
    }
    if (wanted_.thought_end.empty() || (wanted_.thought_begin.empty() && !wanted_.in_thought)) return {};
    const Gbnf text = Gbnf::sequence({text_before(wanted_.thought_end, rules_, "thought", kMostThought), Gbnf::literal(wanted_.thought_end), Gbnf::repeat(Gbnf::literal("\n"), 0, 2)});
    if (wanted_.in_thought) return text;
    return Gbnf::optional(Gbnf::sequence({Gbnf::literal(wanted_.thought_begin), text}));
  }

  Gbnf call(const std::string& name, const Schema& schema) {
    const std::string quoted = Json(name).dump();
    const auto object = [&](ValueStyle style) {
      std::vector<Gbnf> out;
      SchemaGrammar grammar(schema, rules_, std::move(style));
      for (const FlatSchema& flat : schema.flatten(schema.root())) if (flat.types & kObject) out.push_back(grammar.object(flat));
      return rules_.add("arguments", Gbnf::either(std::move(out)));
    };
    switch (family_.form) {
      case CallForm::json:
      case CallForm::list: {
        const std::string begin = family_.name_is_key ? "{" + quoted + ": " : "{\"" + family_.name_key + "\": " + quoted + ", \"" + family_.arguments_key + "\": ";
        return Gbnf::sequence({Gbnf::literal(family_.call_begin + begin), object({}), Gbnf::literal("}" + family_.call_end)});
      }
      case CallForm::harmony: return Gbnf::sequence({Gbnf::literal("<|channel|>commentary to=functions." + name + " <|constrain|>json<|message|>"), object({})});
      case CallForm::named: {
        const Gbnf number = family_.numbered ? Gbnf::sequence({Gbnf::literal(":"), Gbnf::chars({{'0', '9'}})}) : Gbnf();
        return Gbnf::sequence({Gbnf::literal((wanted_.begun ? "" : family_.call_begin) + family_.name_prefix + name), number, Gbnf::literal(family_.name_end), object({}), Gbnf::literal(family_.call_end)});
      }
      case CallForm::brace: return Gbnf::sequence({Gbnf::literal(family_.call_begin + name), object({.quote = family_.quote, .escaped = false, .bare_names = true}), Gbnf::literal(family_.call_end)});
      case CallForm::python: return Gbnf::sequence({Gbnf::literal(name + "("), members(schema), Gbnf::literal(")")});
      case CallForm::tags: return Gbnf::sequence({Gbnf::literal(family_.call_begin + name + family_.name_end), members(schema), Gbnf::literal(family_.call_end)});
    }
    return Gbnf::never();
  }

  // Properties one after the other, each written as the family writes it.
  Gbnf members(const Schema& schema) {
    std::vector<Gbnf> alternatives;
    const bool python = family_.form == CallForm::python;
    ValueStyle style = python ? ValueStyle{.yes = "True", .no = "False", .null = "None"} : ValueStyle{};
    SchemaGrammar inner(schema, rules_, style);
    SchemaGrammar raw(schema, rules_, {.quote = "", .escaped = false, .stop = to_code_points(family_.value_end.empty() ? "<" : family_.value_end.substr(family_.value_end.find_first_not_of(" \n")))[0]});
    for (const FlatSchema& flat : schema.flatten(schema.root())) {
      if (!(flat.types & kObject)) continue;
      std::vector<std::pair<Gbnf, bool>> written;
      bool impossible = false;
      for (const auto& [key, part] : flat.properties) {
        const bool required = flat.required.contains(key);
        if (part == false) {
          impossible |= required;
          continue;
        }
        written.emplace_back(python ? Gbnf::sequence({Gbnf::literal(key + "="), inner.value(part)}) : tag(key, part, schema, inner, raw), required);
      }
      if (impossible) continue;
      const Gbnf comma = python ? Gbnf::literal(", ") : Gbnf();
      Gbnf after, first;                     // as in an object: what may follow, and what may come first
      for (size_t i = written.size(); i-- > 0;) {
        const auto& [text, required] = written[i];
        Gbnf with = Gbnf::sequence({comma, text, after}), begin = Gbnf::sequence({text, after});
        first = required ? std::move(begin) : Gbnf::either({std::move(begin), std::move(first)});
        after = rules_.add("more", required ? std::move(with) : Gbnf::either({std::move(with), std::move(after)}));
      }
      alternatives.push_back(std::move(first));
    }
    return rules_.add("members", Gbnf::either(std::move(alternatives)));
  }

  Gbnf tag(const std::string& key, const Json& part, const Schema& schema, SchemaGrammar& inner, SchemaGrammar& raw) {
    std::vector<Gbnf> texts, others;
    for (FlatSchema flat : schema.flatten(part)) {
      if (flat.values) {
        for (const Json& v : *flat.values) if (schema.fits(v, part)) (v.is_string() ? texts : others).push_back(v.is_string() ? Gbnf::literal(v.get<std::string>()) : inner.literal(v));
        continue;
      }
      if (flat.types == kString) {
        texts.push_back(raw.text(flat, false));
      } else {
        // A text among other types would be read as JSON: it is left out where there is a choice.
        Json without = {{"allOf", {part, {{"not", {{"type", "string"}}}}}}};
        others.push_back(inner.value(flat.types & kString && flat.types != kString ? without : part));
      }
    }
    const std::string other_begin = family_.value_begin_other.empty() ? family_.value_begin : family_.value_begin_other;
    std::string opening = other_begin;
    if (const size_t place = opening.find("{type}"); place != std::string::npos) opening.replace(place, 6, type_name(part));
    const Gbnf begin = Gbnf::literal(family_.key_begin + key + family_.key_end);
    const Gbnf end = Gbnf::literal(family_.value_end + (family_.closing_key.empty() ? "" : key + family_.closing_key));
    std::vector<Gbnf> out;
    if (!texts.empty()) out.push_back(Gbnf::sequence({Gbnf::literal(family_.value_begin), Gbnf::either(std::move(texts))}));
    if (!others.empty() && out.empty()) out.push_back(Gbnf::sequence({Gbnf::literal(opening), Gbnf::either(std::move(others))}));
    return Gbnf::sequence({begin, Gbnf::either(std::move(out)), end});
  }

  const AnswerFamily& family_;
  const CallsWanted& wanted_;
  GbnfRules rules_;
  std::vector<std::unique_ptr<Schema>> schemas_;
};

}  // namespace

std::string calls_grammar(const AnswerFamily& family, const CallsWanted& wanted) { return CallsWriter(family, wanted).write(); }

}  // namespace ridge
