#include "text/schema_grammar.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "text/regular.h"

namespace ridge {

namespace {

constexpr int64_t kMostCount = 4096;                 // minItems, minLength, minProperties: more is no answer
constexpr int kMostDepth = 96;
constexpr int kFreeDepth = 4;                        // of values that no schema describes
constexpr int kMostOptional = 200;
constexpr int kMostMultiples = 1024;
constexpr int64_t kCountedText = 48;
constexpr int kMostDistinct = 16, kMostTexts = 8;    // of values to choose from, and of texts, where items have to differ

CharSet written() { return CharSet{{0, 31}, {'"', '"'}, {'\\', '\\'}, {127, 127}}.negated(); }
int64_t bounded(int64_t max) { return max > kMostCount ? Gbnf::kEndless : max; }

// All texts but some: along the tree of their beginnings.
Gbnf all_but(const std::vector<std::u32string>& texts, size_t at, const CharSet& set) {
  const bool ends = std::ranges::any_of(texts, [&](const std::u32string& t) { return t.size() == at; });
  std::map<char32_t, std::vector<std::u32string>> next;
  for (const std::u32string& text : texts) if (text.size() > at) next[text[at]].push_back(text);
  CharSet others = set;
  std::vector<Gbnf> out;
  if (!ends) out.emplace_back();
  for (const auto& [c, rest] : next) {
    others = others.without(CharSet{{c, c}});
    if (set.contains(c)) out.push_back(Gbnf::sequence({Gbnf::chars({{c, c}}), all_but(rest, at + 1, set)}));
  }
  out.push_back(Gbnf::sequence({Gbnf::chars(others), Gbnf::repeat(Gbnf::chars(set), 0)}));
  return Gbnf::either(std::move(out));
}

// A repetition of nearly anything costs a walk over nearly all tokens for each of its states.
bool has_wide_repeat(const Gbnf& e) {
  if (e.kind() == Gbnf::Kind::repeat && e.max() > 24 && e.parts()[0].kind() == Gbnf::Kind::chars && e.parts()[0].set().size() > 1000) return true;
  return std::ranges::any_of(e.parts(), has_wide_repeat);
}

}  // namespace

SchemaGrammar::SchemaGrammar(const Schema& schema, GbnfRules& rules, ValueStyle style) : schema_(schema), rules_(rules), style_(std::move(style)) {
  const Gbnf space = Gbnf::optional(Gbnf::literal(" "));
  colon_ = style_.bare_names ? Gbnf::literal(":") : Gbnf::sequence({Gbnf::literal(":"), space});
  comma_ = style_.bare_names ? Gbnf::literal(",") : Gbnf::sequence({Gbnf::literal(","), space});
}

Gbnf SchemaGrammar::in_style(const Gbnf& content) const {
  return content.map_chars([&](const CharSet& set) {
    if (!style_.escaped) return Gbnf::chars(set.without(CharSet{{style_.stop, style_.stop}, {0, 8}, {11, 31}}));
    std::vector<Gbnf> out = {Gbnf::chars(set.both(written()))};
    // A wide set leaves its control characters out: a model that found them would not come back.
    static constexpr std::pair<char32_t, const char*> kEscapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {'\t', "\\t"}, {'\r', "\\r"}, {'\b', "\\b"}, {'\f', "\\f"}};
    for (const auto& [c, escape] : kEscapes) {
      if (set.contains(c) && (c >= 32 || set.size() < 1000)) out.push_back(Gbnf::literal(escape));
    }
    if (set.size() < 1000) {
      const CharSet controls = set.both({{0, 31}, {127, 127}});
      for (const CharSet::Range& r : controls.ranges()) {
        for (char32_t c = r.first; c <= r.second; ++c) {
          if (c != '\n' && c != '\t' && c != '\r' && c != '\b' && c != '\f') out.push_back(Gbnf::literal(fmt::format("\\u{:04x}", static_cast<uint32_t>(c))));
        }
      }
    }
    return Gbnf::either(std::move(out));
  });
}

Gbnf SchemaGrammar::quoted(Gbnf content) const { return Gbnf::sequence({Gbnf::literal(style_.quote), std::move(content), Gbnf::literal(style_.quote)}); }

Gbnf SchemaGrammar::name(const std::string& text) const {
  if (style_.bare_names) return Gbnf::literal(text);
  return Gbnf::literal(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

Gbnf SchemaGrammar::literal(const Json& value) const {
  const auto text_of = [](const Json& v) { return v.dump(-1, ' ', false, Json::error_handler_t::replace); };
  if (value.is_null()) return Gbnf::literal(style_.null);
  if (value.is_boolean()) return Gbnf::literal(value.get<bool>() ? style_.yes : style_.no);
  if (value.is_string()) return style_.escaped ? Gbnf::literal(text_of(value)) : quoted(Gbnf::literal(value.get<std::string>()));
  if (value.is_array()) {
    std::vector<Gbnf> parts = {Gbnf::literal("[")};
    for (const Json& item : value) {
      if (parts.size() > 1) parts.push_back(comma_);
      parts.push_back(literal(item));
    }
    parts.push_back(Gbnf::literal("]"));
    return Gbnf::sequence(std::move(parts));
  }
  if (value.is_object()) {
    std::vector<Gbnf> parts = {Gbnf::literal("{")};
    for (const auto& [key, item] : value.items()) {
      if (parts.size() > 1) parts.push_back(comma_);
      parts.insert(parts.end(), {name(key), colon_, literal(item)});
    }
    parts.push_back(Gbnf::literal("}"));
    return Gbnf::sequence(std::move(parts));
  }
  return Gbnf::literal(text_of(value));
}

Gbnf SchemaGrammar::value(const Json& part) {
  const std::string key = part.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (const auto found = known_.find(key); found != known_.end()) return Gbnf::rule(found->second);
  if (++depth_ > kMostDepth) fail("{}: values are nested more than {} deep, or grow with every level", schema_.what(), kMostDepth);
  const std::string rule = rules_.reserve("value");
  if (rules_.size() > 20000) fail("{} is too large: it becomes more than 20000 rules", schema_.what());
  known_.emplace(key, rule);
  std::vector<Gbnf> alternatives;
  for (const FlatSchema& flat : schema_.flatten(part)) alternatives.push_back(flat_value(flat));
  rules_.define(rule, Gbnf::either(std::move(alternatives)));
  --depth_;
  return Gbnf::rule(rule);
}

Gbnf SchemaGrammar::flat_value(const FlatSchema& flat) {
  if (flat.values) {
    std::vector<Gbnf> out;
    std::vector<Json> seen;
    for (const Json& v : *flat.values) {
      const auto fits = [&](const Json& source) { return schema_.fits(v, source); };
      const bool good = std::ranges::all_of(flat.sources, fits) && std::ranges::find(flat.excluded, v) == flat.excluded.end() && std::ranges::find(seen, v) == seen.end();
      if (good) out.push_back(literal(v)), seen.push_back(v);
    }
    return Gbnf::either(std::move(out));
  }
  const bool free = flat.sources.size() <= 1 && flat.types == kAnyType && flat.excluded.empty();
  if (free) return any(0);
  const auto excluded = [&](const Json& v) { return std::ranges::find(flat.excluded, v) != flat.excluded.end(); };
  std::vector<Gbnf> out;
  if (flat.types & kNull && !excluded(nullptr)) out.push_back(Gbnf::literal(style_.null));
  if (flat.types & kBoolean) {
    if (!excluded(true)) out.push_back(Gbnf::literal(style_.yes));
    if (!excluded(false)) out.push_back(Gbnf::literal(style_.no));
  }
  if (flat.types & kNumber) out.push_back(number(flat, !(flat.types & kFraction)));
  if (flat.types & kString) out.push_back(text(flat));
  if (flat.types & kArray) out.push_back(array(flat));
  if (flat.types & kObject) out.push_back(object(flat));
  return Gbnf::either(std::move(out));
}

Gbnf SchemaGrammar::number(const FlatSchema& flat, bool whole) {
  for (const Json& v : flat.excluded) {
    if (v.is_number() && flat.multiples.empty()) {         // split the range there
      FlatSchema below = flat, above = flat;
      std::erase(below.excluded, v);
      above.excluded = below.excluded;
      const double at = v.get<double>();
      const std::string digits = plain_decimal(v.dump(), schema_.what());
      if ((!flat.low.digits.empty() && at < std::stod(flat.low.digits)) || (!flat.high.digits.empty() && at > std::stod(flat.high.digits))) return number(below, whole);
      below.high = {digits, true};
      above.low = {digits, true};
      return Gbnf::either({number(below, whole), number(above, whole)});
    }
  }
  if (flat.multiples.empty()) {
    // A number that is no integer is wanted where only fractions may come: not said by any schema, but by the difference of two.
    if (whole) return rules_.add("integer", integers_between(flat.low, flat.high));
    const bool bounds = !flat.low.digits.empty() || !flat.high.digits.empty();
    Gbnf out = numbers_between(flat.low, flat.high);
    if (!bounds) {
      const Gbnf exponent = Gbnf::sequence({Gbnf::chars(CharSet::of("eE")), Gbnf::optional(Gbnf::chars(CharSet::of("+-"))), Gbnf::chars({{'1', '9'}}), Gbnf::optional(Gbnf::chars({{'0', '9'}}))});
      out = Gbnf::sequence({std::move(out), Gbnf::optional(exponent)});
    }
    return rules_.add("number", std::move(out));
  }
  // Multiples are counted out from the bound that is nearest to 0: digits cannot be divided by a grammar.
  const double step = flat.multiples[0].get<double>();
  const bool has_low = !flat.low.digits.empty(), has_high = !flat.high.digits.empty();
  const double low = has_low ? std::stod(flat.low.digits) : -INFINITY, high = has_high ? std::stod(flat.high.digits) : INFINITY;
  const bool downward = !has_low && has_high && high < 0;
  double k = downward ? std::floor(high / step) : has_low ? std::ceil(low / step) : 0;
  if (std::abs(k) > 1e15) fail("{}: multipleOf {} near {} has too many digits", schema_.what(), flat.multiples[0].dump(), low);
  const std::string unit = plain_decimal(flat.multiples[0].dump(), schema_.what());
  const size_t n_fraction = unit.find('.') == std::string::npos ? 0 : unit.size() - unit.find('.') - 1;
  std::vector<Gbnf> out;
  for (int i = 0; i < 4 * kMostMultiples && out.size() < kMostMultiples; ++i, k += downward ? -1 : 1) {
    std::string digits = n_fraction == 0 ? fmt::format("{:.0f}", k * step) : fmt::format("{:.{}f}", k * step, n_fraction);
    while (n_fraction > 0 && digits.back() == '0') digits.pop_back();
    if (digits.back() == '.') digits.pop_back();
    if (digits == "-0") digits = "0";
    const Json v = Json::parse(digits);
    const double x = v.get<double>();
    if (x > high || x < low) {
      if (downward ? x < low : x > high) break;
      continue;
    }
    if ((flat.low.exclusive && x == low) || (flat.high.exclusive && x == high) || (whole && x != std::floor(x))) continue;
    const auto divides = [&](const Json& m) { return x / m.get<double>() == std::floor(x / m.get<double>()); };
    if (!std::ranges::all_of(flat.multiples, divides) || std::ranges::find(flat.excluded, v) != flat.excluded.end()) continue;
    out.push_back(Gbnf::literal(digits));
  }
  return rules_.add("multiple", Gbnf::either(std::move(out)));
}

Gbnf SchemaGrammar::text(const FlatSchema& flat, bool with_quotes) {
  const auto enclosed = [&](Gbnf content) { return with_quotes ? quoted(std::move(content)) : content; };
  if (flat.min_length > kMostCount) fail("{}: minLength is {}; at most {} is supported", schema_.what(), flat.min_length, kMostCount);
  if (flat.min_length > flat.max_length) return Gbnf::never();
  if (flat.patterns.size() > 1) fail("{}: one text has to match both '{}' and '{}'; write them as one pattern", schema_.what(), flat.patterns[0], flat.patterns[1]);

  Gbnf content = flat.patterns.empty() ? format_of_text(flat.format) : parse_regular(flat.patterns[0], RegularMatch::search, schema_.what());
  if (!content.is_never()) {
    // An endless pattern gets an end: long enough for what is written, short enough to be reached.
    const int64_t more = has_wide_repeat(content) ? 24 : 64;
    const int64_t end = std::min(flat.max_length, std::max(content.min_length(), flat.min_length) + more);
    content = content.with_length(flat.min_length, end);
    if (content.is_never()) return content;
    if (std::ranges::any_of(flat.excluded, [](const Json& v) { return v.is_string(); })) fail("{}: 'not' with a pattern or format is not supported", schema_.what());
    return rules_.add("pattern", enclosed(in_style(content)));
  }
  std::vector<std::u32string> others;
  for (const Json& v : flat.excluded) if (v.is_string()) others.push_back(to_code_points(v.get<std::string>()));
  if (!others.empty()) {
    CharSet plain = CharSet::of("_- .,").both(written());
    plain.add('0', '9'), plain.add('A', 'Z'), plain.add('a', 'z'), plain.add(0xa1, 0x10ffff);
    content = all_but(others, 0, plain);
    const bool counted = flat.min_length > 1 || std::ranges::any_of(others, [&](const std::u32string& t) { return static_cast<int64_t>(t.size()) >= flat.max_length; });
    if (counted) return rules_.add("other", enclosed(in_style(content.with_length(flat.min_length, std::min<int64_t>(flat.max_length, flat.min_length + 32)))));
    if (flat.min_length == 1 && std::ranges::find(others, std::u32string()) == others.end()) others.emplace_back(), content = all_but(others, 0, plain);
    return enclosed(rules_.add("other", in_style(content), std::min<int64_t>(flat.max_length, 48)));
  }
  // Characters as they are written count as at least as many as they stand for, so that a budget of them keeps maxLength.
  const Gbnf character = in_style(Gbnf::chars(CharSet::any()));
  const Gbnf fixed = Gbnf::repeat(character, flat.min_length, flat.min_length);
  const int64_t left = std::min<int64_t>(flat.max_length - flat.min_length, std::max<int64_t>(kFreeText - flat.min_length, 64));
  const std::string key = fmt::format("text:{}:{}", flat.min_length, left);
  auto found = known_.find(key);
  if (found == known_.end()) {
    // A short text counts its characters in states. A long one has a budget, which costs time only near its end.
    const std::string rule = rules_.reserve("text");
    if (flat.min_length + left <= kCountedText) rules_.define(rule, Gbnf::repeat(character, flat.min_length, flat.min_length + left));
    else rules_.define(rule, Gbnf::sequence({rules_.add("least", fixed), rules_.add("rest", Gbnf::repeat(character, 0), left)}));
    found = known_.emplace(key, rule).first;
  }
  return enclosed(Gbnf::rule(found->second));
}

// Items in the order of the list, each at most once: rule (i, n) has n of the first i behind it.
Gbnf SchemaGrammar::distinct(const std::vector<Gbnf>& items, int64_t min, int64_t max, bool comma_first) {
  const int n_items = static_cast<int>(items.size());
  max = std::min<int64_t>(max, n_items);
  if (min > max) return Gbnf::never();
  std::map<std::pair<int, int>, Gbnf> rules;
  const std::function<Gbnf(int, int)> from = [&](int i, int n) -> Gbnf {
    if (const auto found = rules.find({i, n}); found != rules.end()) return found->second;
    std::vector<Gbnf> out;
    if (n >= min) out.emplace_back();
    if (i < n_items && n < max) {
      out.push_back(Gbnf::sequence({n > 0 || comma_first ? comma_ : Gbnf(), items[i], from(i + 1, n + 1)}));
      if (n_items - i - 1 >= min - n) out.push_back(from(i + 1, n));
    }
    Gbnf rule = rules_.add("distinct", Gbnf::either(std::move(out)));
    return rules.emplace(std::pair{i, n}, std::move(rule)).first->second;
  };
  return from(0, 0);
}

// Texts that differ because they begin differently: those of digits and letters, in that order.
std::vector<Gbnf> SchemaGrammar::texts_by_first_letter(const FlatSchema& item) {
  const Gbnf character = in_style(Gbnf::chars(CharSet::any()));
  const int64_t least = std::max<int64_t>(item.min_length - 1, 0), most = item.max_length - 1;
  const Gbnf fixed = Gbnf::repeat(character, least, least);
  const Gbnf rest = most > least ? rules_.add("rest", Gbnf::repeat(character, 0), std::min<int64_t>(most - least, kFreeText)) : Gbnf();
  std::vector<Gbnf> out;
  const auto begins = [&](CharSet first) { out.push_back(rules_.add("text", quoted(Gbnf::sequence({Gbnf::chars(std::move(first)), fixed, rest})))); };
  for (char32_t c = '0'; c <= '9'; ++c) begins({{c, c}});
  for (char32_t c = 'a'; c <= 'z'; ++c) begins({{c, c}, {c - 32, c - 32}});
  return out;
}

Gbnf SchemaGrammar::array(const FlatSchema& flat) {
  if (flat.min_items > kMostCount) fail("{}: minItems is {}; at most {} is supported", schema_.what(), flat.min_items, kMostCount);
  int64_t most = bounded(flat.max_items);
  if (flat.unique && most > 1) {
    std::vector<Json> values;
    bool finite = flat.prefix.empty() && flat.has_items;
    if (finite) {
      for (const FlatSchema& item : schema_.flatten(flat.items)) {
        if (item.values) {
          for (const Json& v : *item.values) if (std::ranges::all_of(item.sources, [&](const Json& s) { return schema_.fits(v, s); })) values.push_back(v);
        } else if (item.types == kBoolean) {
          values.insert(values.end(), {Json(true), Json(false)});
        } else if (item.types == kInteger && !item.low.digits.empty() && !item.high.digits.empty() && std::stod(item.high.digits) - std::stod(item.low.digits) < 256 && item.multiples.empty()) {
          for (auto v = static_cast<int64_t>(std::ceil(std::stod(item.low.digits))); v <= static_cast<int64_t>(std::stod(item.high.digits)); ++v) {
            if (schema_.fits(Json(v), flat.items)) values.emplace_back(v);
          }
        } else {
          finite = false;
        }
      }
    }
    if (finite) {
      std::vector<Gbnf> items;
      for (const Json& v : values) if (static_cast<int64_t>(items.size()) < std::max<int64_t>(kMostDistinct, flat.min_items)) items.push_back(literal(v));
      return Gbnf::sequence({Gbnf::literal("["), distinct(items, flat.min_items, flat.max_items, false), Gbnf::literal("]")});
    }
    const std::vector<FlatSchema> item = schema_.flatten(flat.items);
    if (flat.prefix.empty() && item.size() == 1 && !item[0].values && item[0].types == kString && item[0].patterns.empty() && item[0].format.empty() && item[0].excluded.empty() &&
        item[0].max_length > 0 && item[0].min_length <= std::min(item[0].max_length, kMostCount)) {
      const int64_t most_texts = std::min(flat.max_items, std::max<int64_t>(kMostTexts, flat.min_items));
      return Gbnf::sequence({Gbnf::literal("["), distinct(texts_by_first_letter(item[0]), flat.min_items, most_texts, false), Gbnf::literal("]")});
    }
    // One item needs nothing.
    if (flat.min_items > 1) fail("{}: uniqueItems with minItems {} needs items that are plain texts, or of an enum or a small range of integers", schema_.what(), flat.min_items);
    most = 1;
  }
  std::vector<Gbnf> fixed;
  for (const Json& part : flat.prefix) {
    if (static_cast<int64_t>(fixed.size()) >= most) break;
    fixed.push_back(value(part));
  }
  // Beyond a tuple nothing comes unless the schema asks for it.
  const bool more = flat.prefix.empty() || flat.has_items || flat.min_items > static_cast<int64_t>(fixed.size());
  const int64_t n_fixed = static_cast<int64_t>(fixed.size());
  const bool end_here = !more || flat.items == false || most <= n_fixed;
  const int64_t least_rest = std::max<int64_t>(0, flat.min_items - n_fixed);
  if (end_here && least_rest > 0) return Gbnf::never();

  Gbnf rest;
  if (!end_here) {
    const Gbnf item = value(flat.items);
    const int64_t most_rest = most == Gbnf::kEndless ? most : most - n_fixed;
    if (n_fixed > 0) {
      rest = Gbnf::repeat(Gbnf::sequence({comma_, item}), least_rest, most_rest);
    } else {
      rest = Gbnf::sequence({item, Gbnf::repeat(Gbnf::sequence({comma_, item}), std::max<int64_t>(least_rest - 1, 0), most_rest == Gbnf::kEndless ? most_rest : most_rest - 1)});
      if (least_rest == 0) rest = Gbnf::optional(std::move(rest));
    }
  }
  // Items of a tuple that are not asked for may be left out from the end.
  Gbnf inside = std::move(rest);
  for (int64_t i = n_fixed; i-- > 0;) {
    inside = Gbnf::sequence({i > 0 ? comma_ : Gbnf(), fixed[i], std::move(inside)});
    if (i >= flat.min_items) inside = Gbnf::optional(std::move(inside));
  }
  return Gbnf::sequence({Gbnf::literal("["), std::move(inside), Gbnf::literal("]")});
}

// A name for a property that the schema does not list.
Gbnf SchemaGrammar::free_name(const FlatSchema& flat) {
  std::vector<Gbnf> out;
  for (FlatSchema names : schema_.flatten(flat.names)) {
    if (!(names.types & kString)) continue;
    std::vector<Json> taken;
    for (const auto& [listed, schema] : flat.properties) taken.emplace_back(listed);
    if (names.values) {
      for (const Json& v : *names.values) if (v.is_string() && std::ranges::find(taken, v) == taken.end()) out.push_back(name(v.get<std::string>()));
      continue;
    }
    if (names.patterns.empty() && names.format.empty()) {
      names.excluded.insert(names.excluded.end(), taken.begin(), taken.end());
      names.excluded.emplace_back("");
    }
    out.push_back(text(names, !style_.bare_names));
  }
  return Gbnf::either(std::move(out));
}

Gbnf SchemaGrammar::object(const FlatSchema& flat) {
  if (flat.min_properties > kMostCount) fail("{}: minProperties is {}; at most {} is supported", schema_.what(), flat.min_properties, kMostCount);
  struct Member { Gbnf text; bool required; };
  std::vector<Member> members;
  for (const auto& [key, schema] : flat.properties) {
    const bool required = flat.required.contains(key);
    if (schema == false) {
      if (required) return Gbnf::never();
      continue;
    }
    members.push_back({Gbnf::sequence({name(key), colon_, value(schema)}), required});
  }
  // What is optional may be skipped, so each of them sees all that follow: beyond a number of them they are left out.
  int n_optional = 0;
  std::erase_if(members, [&](const Member& m) { return !m.required && ++n_optional > kMostOptional; });
  // Counts by taking what is optional for required, or leaving it out.
  int64_t n_required = std::ranges::count_if(members, &Member::required);
  const bool open = flat.additional != false && ((flat.has_additional && (flat.additional != true || flat.properties.empty())) || (!flat.has_properties && flat.properties.empty()) || flat.min_properties > static_cast<int64_t>(members.size()));
  const bool more = open || !flat.pattern_properties.empty();
  int64_t n_extra_least = 0, n_extra_most = more ? Gbnf::kEndless : 0;
  if (flat.min_properties > n_required) {
    for (Member& member : members) {
      if (n_required >= flat.min_properties) break;
      if (!member.required) member.required = true, ++n_required;
    }
    n_extra_least = flat.min_properties - n_required;
  }
  if (n_required > flat.max_properties || n_extra_least > n_extra_most) return Gbnf::never();
  if (flat.max_properties < Gbnf::kEndless) {
    int64_t left = flat.max_properties - n_required;
    std::erase_if(members, [&](const Member& m) { return !m.required && left-- <= 0; });
    n_extra_most = std::min(n_extra_most, bounded(flat.max_properties) == Gbnf::kEndless ? Gbnf::kEndless : flat.max_properties - static_cast<int64_t>(members.size()));
    if (n_extra_most < n_extra_least) return Gbnf::never();
  }

  Gbnf pair = Gbnf::never();
  if (n_extra_most > 0) {
    std::vector<Gbnf> pairs;
    for (const auto& [pattern, schema] : flat.pattern_properties) {
      FlatSchema key;
      key.types = kString;
      key.patterns = {pattern};
      for (const auto& [listed, unused] : flat.properties) {
        if (schema_.fits(Json(listed), Json{{"pattern", pattern}})) {
          // A listed name also matches: then the pattern's own value has to fit that one too, or the names have to differ. Names that are listed are not made twice.
          key.patterns.clear();
        }
      }
      if (key.patterns.empty()) continue;
      pairs.push_back(Gbnf::sequence({text(key, !style_.bare_names), colon_, value(schema)}));
    }
    if (flat.pattern_properties.empty() && open) pairs.push_back(Gbnf::sequence({free_name(flat), colon_, flat.additional == true ? any(1) : value(flat.additional)}));
    pair = Gbnf::either(std::move(pairs));
    if (pair.is_never() && n_extra_least > 0) return pair;
  }

  // A name that comes twice counts once: where several are asked for, each begins with another letter.
  std::vector<Gbnf> lettered;
  if (n_extra_least > 1) {
    if (!flat.pattern_properties.empty() || flat.names != true || style_.bare_names) fail("{}: minProperties {} together with patterns of names is not supported", schema_.what(), flat.min_properties);
    for (char32_t c = 'a'; c <= 'z'; ++c) {
      if (std::ranges::any_of(flat.properties, [&](const auto& p) { return p.first.starts_with(static_cast<char>(c)); })) continue;
      const Gbnf text = Gbnf::sequence({Gbnf::chars({{c, c}}), Gbnf::repeat(Gbnf::chars({{'0', '9'}, {'a', 'z'}, {'_', '_'}}), 0, 24)});
      lettered.push_back(Gbnf::sequence({rules_.add("name", quoted(text)), colon_, flat.additional == true ? any(1) : value(flat.additional)}));
    }
    n_extra_most = std::min<int64_t>(n_extra_most, std::max<int64_t>(n_extra_least, kMostTexts));
  }

  // What may follow once something has been written, from the last member back; `first` where nothing has.
  Gbnf extras = n_extra_least > 1 ? distinct(lettered, n_extra_least, n_extra_most, true) : Gbnf::repeat(Gbnf::sequence({comma_, pair}), n_extra_least, n_extra_most);
  Gbnf extras_first = pair.is_never() ? Gbnf() : Gbnf::sequence({pair, Gbnf::repeat(Gbnf::sequence({comma_, pair}), std::max<int64_t>(n_extra_least - 1, 0), n_extra_most == Gbnf::kEndless ? n_extra_most : n_extra_most - 1)});
  if (n_extra_least == 0 && !pair.is_never()) extras_first = Gbnf::optional(std::move(extras_first));
  if (n_extra_least > 1) extras_first = distinct(lettered, n_extra_least, n_extra_most, false);
  Gbnf after = extras.is_never() ? Gbnf() : extras, first = extras_first;
  for (size_t i = members.size(); i-- > 0;) {
    const Member& member = members[i];
    Gbnf with = Gbnf::sequence({comma_, member.text, after});
    Gbnf begin = Gbnf::sequence({member.text, after});
    // Rules where the rest is used twice, so that the text does not double with every member.
    first = member.required ? std::move(begin) : Gbnf::either({std::move(begin), std::move(first)});
    after = rules_.add("more", member.required ? std::move(with) : Gbnf::either({std::move(with), std::move(after)}));
  }
  return Gbnf::sequence({Gbnf::literal("{"), std::move(first), Gbnf::literal("}")});
}

Gbnf SchemaGrammar::any_object() {
  FlatSchema flat;
  flat.types = kObject;
  return object(flat);
}

Gbnf SchemaGrammar::any(int depth) {
  const std::string key = fmt::format("any:{}", depth);
  if (const auto found = known_.find(key); found != known_.end()) return Gbnf::rule(found->second);
  const std::string rule = rules_.reserve("any");
  known_.emplace(key, rule);
  FlatSchema simple;
  simple.types = kNull | kBoolean | kNumber | kString;
  simple.sources.resize(2);
  std::vector<Gbnf> out = {flat_value(simple)};
  if (depth < kFreeDepth) {
    const Gbnf inner = any(depth + 1);
    const Gbnf list = Gbnf::sequence({inner, Gbnf::repeat(Gbnf::sequence({comma_, inner}), 0)});
    out.push_back(Gbnf::sequence({Gbnf::literal("["), Gbnf::optional(list), Gbnf::literal("]")}));
    const Gbnf pair = Gbnf::sequence({free_name(FlatSchema{}), colon_, inner});
    out.push_back(Gbnf::sequence({Gbnf::literal("{"), Gbnf::optional(Gbnf::sequence({pair, Gbnf::repeat(Gbnf::sequence({comma_, pair}), 0)})), Gbnf::literal("}")}));
  }
  rules_.define(rule, Gbnf::either(std::move(out)));
  return Gbnf::rule(rule);
}

}  // namespace ridge
