// Structured output: whatever a mask lets through is a document that fits, and no source can take the machine away.
#include "text/grammar.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <random>

#include "base/error.h"
#include "text/grammar_source.h"
#include "text/number_range.h"
#include "text/regex.h"
#include "text/regular.h"
#include "text/schema.h"
#include "tokenizer_data.h"

namespace ridge {
namespace {

constexpr int kPadding = 9;                  // logits beyond the vocabulary

class Grammar : public testing::Test {
 protected:
  void SetUp() override {
    if (!GrammarCompiler::available()) GTEST_SKIP() << "built without xgrammar";
  }

  static const Tokenizer& tokenizer() {
    static const std::unique_ptr<Tokenizer> shipped = test::shipped("byte_level");
    return *shipped;
  }
  static int32_t eos() { return tokenizer().find("<|endoftext|>").value_or(0); }
  static int n_vocab() { return tokenizer().n_vocab() + kPadding; }
  static GrammarCompiler& compiler() {
    static GrammarCompiler made(tokenizer(), n_vocab(), {eos()});
    return made;
  }

  // A seeded choice among what is allowed, until the grammar is done.
  static std::optional<std::string> walk(const std::shared_ptr<const CompiledGrammar>& grammar, unsigned seed, int soft_end = 40, int most = 1500) {
    std::mt19937 random(seed);
    const std::shared_ptr<TokenFilter> filter = compiler().start(grammar, soft_end);
    std::string text;
    for (int i = 0; i < most && !filter->done(); ++i) {
      std::vector<uint32_t> mask((static_cast<size_t>(n_vocab()) + 31) / 32, ~0u);
      const bool restricted = filter->restrict(mask);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < n_vocab(); ++id) if (mask[id / 32] >> (id % 32) & 1) allowed.push_back(id);
      EXPECT_FALSE(allowed.empty()) << text;
      if (allowed.empty()) return std::nullopt;
      if (restricted) EXPECT_LT(allowed.back(), tokenizer().n_vocab()) << "a padding id is allowed after " << text;
      const int32_t token = allowed[random() % allowed.size()];
      filter->accept(token);
      if (token == eos()) break;
      text += tokenizer().token_bytes(token);
    }
    if (!filter->done()) return std::nullopt;
    return text;
  }

  static void expect_refused(const Json& schema, std::string_view part) {
    try {
      (void)compiler().json_schema(schema);
      ADD_FAILURE() << "not refused: " << schema.dump();
    } catch (const Error& error) {
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << schema.dump() << ": " << error.what();
    }
  }
};

TEST_F(Grammar, EveryDocumentOfTwoHundredSchemasFits) {
  const Json schemas = read_json_file(RIDGE_SOURCE_DIR "/tests/text/schemas/schemas.json");
  ASSERT_EQ(schemas.size(), 200u);
  // For tests/text/schemas/validate.py, which asks a validator of others.
  std::ofstream documents;
  if (const char* path = std::getenv("RIDGE_DOCUMENTS")) documents.open(path);
  for (const Json& entry : schemas) {
    const Json& schema = entry["schema"];
    const std::string name = entry["name"];
    const auto grammar = compiler().json_schema(schema);
    for (unsigned seed = 0; seed < 3; ++seed) {
      const std::optional<std::string> text = walk(grammar, seed, 20 + static_cast<int>(seed) * 60);
      ASSERT_TRUE(text) << name << " did not end";
      const Json document = Json::parse(*text, nullptr, false);
      ASSERT_FALSE(document.is_discarded()) << name << ": " << *text;
      EXPECT_TRUE(Schema(schema, name).fits(document, schema)) << name << ": " << *text;
      if (documents.is_open()) documents << Json({{"name", name}, {"schema", schema}, {"text", *text}}).dump() << '\n';
    }
  }
}

TEST_F(Grammar, AnyObjectIsJson) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    const std::optional<std::string> text = walk(compiler().json_object(), seed);
    ASSERT_TRUE(text);
    EXPECT_TRUE(Json::parse(*text, nullptr, false).is_object()) << *text;
  }
}

TEST_F(Grammar, WhatContradictsItselfIsRefused) {
  expect_refused(Json::parse(R"({"allOf": [{"type": "integer"}, {"type": "string"}]})"), "match nothing");
  expect_refused(Json::parse(R"({"type": "integer", "minimum": 5, "maximum": 3})"), "match nothing");
  expect_refused(Json::parse(R"({"enum": []})"), "match nothing");
  expect_refused(Json::parse(R"({"type": "string", "enum": [1, 2]})"), "match nothing");
  expect_refused(Json::parse(R"({"type": "string", "minLength": 5, "maxLength": 4})"), "match nothing");
  expect_refused(Json::parse(R"({"type": "string", "pattern": "^a{5}$", "maxLength": 3})"), "match nothing");
  expect_refused(Json::parse(R"({"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 2})"), "match nothing");
  expect_refused(Json::parse(R"({"type": "object", "properties": {"a": false}, "required": ["a"]})"), "match nothing");
  expect_refused(Json::parse(R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["b"], "additionalProperties": false})"), "match nothing");
  expect_refused(Json::parse(R"({"not": {}})"), "match nothing");
  expect_refused(Json(false), "match nothing");
}

TEST_F(Grammar, EndlessNestingIsRefusedAndRecursionWithAnEndIsNot) {
  expect_refused(Json::parse(R"({"$ref": "#"})"), "refer");
  expect_refused(Json::parse(R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})"), "refer");
  expect_refused(Json::parse(R"({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]})"), "endless");
  expect_refused(Json::parse(R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})"), "endless");
  const auto grammar = compiler().json_schema(Json::parse(R"({"type": "object", "properties": {"next": {"$ref": "#"}}})"));
  EXPECT_TRUE(walk(grammar, 1));
}

TEST_F(Grammar, WhatCannotBeHonouredIsRefusedByName) {
  expect_refused(Json::parse(R"({"$ref": "https://example.com/schema"})"), "$ref");
  expect_refused(Json::parse(R"({"$ref": "#/$defs/nowhere"})"), "leads nowhere");
  expect_refused(Json::parse(R"({"type": "strin"})"), "strin");
  expect_refused(Json::parse(R"({"type": "string", "pattern": "(?=a)b"})"), "ahead");
  expect_refused(Json::parse(R"({"type": "string", "pattern": "a\\1"})"), "\\1");
  expect_refused(Json::parse(R"({"type": "string", "pattern": "("})"), "without )");
  expect_refused(Json::parse(R"({"oneOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"type": "object", "properties": {"a": {"type": "integer"}}}]})"), "oneOf");
  expect_refused(Json::parse(R"({"not": {"pattern": "a"}})"), "pattern");
  expect_refused(Json::parse(R"({"type": "array", "items": {"type": "number"}, "uniqueItems": true, "minItems": 3})"), "uniqueItems");
  expect_refused(Json::parse(R"({"properties": {"a": 5}})"), "property 'a'");
  expect_refused(Json::parse(R"({"minLength": -1})"), "minLength");
  expect_refused(Json::parse(R"({"minimum": "3"})"), "minimum");
  expect_refused(Json(5), "schema");
}

TEST_F(Grammar, ExplosiveSourcesAreRefusedOrCompileSoon) {
  const auto started = std::chrono::steady_clock::now();
  const auto try_schema = [](const Json& schema) {
    try {
      (void)compiler().json_schema(schema);
    } catch (const Error&) {
    }
  };
  try_schema(Json::parse(R"({"type": "array", "items": {"type": "integer"}, "maxItems": 1000000000})"));
  try_schema(Json::parse(R"({"type": "array", "items": {"type": "integer"}, "minItems": 1000000000})"));
  try_schema(Json::parse(R"({"type": "string", "maxLength": 1000000000000})"));
  try_schema(Json::parse(R"({"type": "string", "minLength": 1000000000000})"));
  try_schema(Json::parse(R"({"type": "string", "pattern": "^((a{1000}){1000}){1000}$"})"));
  try_schema(Json::parse(R"({"type": "string", "pattern": "^(a|aa|aaa|b)*c+(a*)*$"})"));
  try_schema(Json::parse(R"({"type": "string", "pattern": "^(a+)+$"})"));
  try_schema(Json::parse(R"({"type": "number", "minimum": 1e300, "maximum": 1e308})"));
  Json deep = {{"type", "integer"}};
  for (int i = 0; i < 400; ++i) deep = {{"type", "array"}, {"items", deep}};
  try_schema(deep);
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 3000; ++i) wide["properties"]["p" + std::to_string(i)] = {{"enum", {i, "x" + std::to_string(i)}}};
  try_schema(wide);
  Json product = {{"allOf", Json::array()}};        // 3^40 alternatives
  for (int i = 0; i < 40; ++i) product["allOf"].push_back({{"anyOf", {{{"required", {"a" + std::to_string(i)}}}, {{"required", {"b" + std::to_string(i)}}}, {{"required", {"c" + std::to_string(i)}}}}}});
  try_schema(product);
  Json chain = {{"$ref", "#/$defs/d0"}, {"$defs", Json::object()}};          // each twice the one before
  for (int i = 0; i < 30; ++i) chain["$defs"]["d" + std::to_string(i)] = {{"allOf", {{{"$ref", "#/$defs/d" + std::to_string(i + 1)}}, {{"$ref", "#/$defs/d" + std::to_string(i + 1)}}}}};
  chain["$defs"]["d30"] = {{"type", "integer"}};
  try_schema(chain);
  EXPECT_THROW((void)compiler().gbnf("root ::= \"a\"{1000000000}"), Error);
  EXPECT_THROW((void)compiler().gbnf("root ::= " + std::string(5000, '(') + "\"a\"" + std::string(5000, ')')), Error);
  EXPECT_THROW((void)compiler().regex("(((a{1000}){1000}){1000}){1000}"), Error);
  EXPECT_THROW((void)compiler().regex("a{1000000}"), Error);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(100));
}

TEST_F(Grammar, WalksOfARegularExpressionMatchIt) {
  for (const std::string pattern : {"[a-z]{2,5}", "(yes|no|maybe)", "\\d{3}-\\d{4}", "a?b*c+", "(ab|c){2,4}x?", "0(\\.[0-9]+)?", "[^a-y]{1,3}!", "(c|c{0,3})d?", "\\p{Lu}\\w*", "\\$[0-9]+\\.[0-9]{2}", "^anchored$", "\"[^\"]{0,9}\""}) {
    const auto grammar = compiler().regex(pattern);
    const Regex regex("^(?:" + pattern + ")$", pattern);
    for (unsigned seed = 0; seed < 8; ++seed) {
      const std::optional<std::string> text = walk(grammar, seed, 12, 200);
      ASSERT_TRUE(text) << pattern;
      RegexSearch search(regex);
      std::vector<Span> found;
      search.find_all(found, *text);
      EXPECT_EQ(found.size(), 1u) << pattern << " made " << *text;
    }
  }
}

TEST_F(Grammar, ChoicesAndGrammarsAreKept) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const std::optional<std::string> chosen = walk(compiler().choice({"größer", "klein", "\"quoted\""}), seed);
    ASSERT_TRUE(chosen);
    EXPECT_TRUE(*chosen == "größer" || *chosen == "klein" || *chosen == "\"quoted\"") << *chosen;
    const std::optional<std::string> sum = walk(compiler().gbnf("root ::= term (\"+\" term){,2} # a sum\nterm ::= [0-9]{1,3}\n"), seed);
    ASSERT_TRUE(sum);
    EXPECT_EQ(sum->find_first_not_of("0123456789+"), std::string::npos) << *sum;
  }
  EXPECT_THROW((void)compiler().choice({}), Error);
  EXPECT_THROW((void)compiler().gbnf("start ::= \"a\""), Error);
  EXPECT_THROW((void)compiler().gbnf("root ::= missing"), Error);
  EXPECT_THROW((void)compiler().gbnf("root ::= \"a"), Error);
  EXPECT_THROW((void)compiler().gbnf("root ::= root"), Error);
  EXPECT_EQ(compiler().choice({"a", "b"}), compiler().choice({"a", "b"})) << "compiled twice";
}

TEST_F(Grammar, AFinishedDocumentNeedsNoEndToken) {
  const auto filter = compiler().start(compiler().json_schema(Json::parse(R"({"const": {"a": 1}})")));
  for (const char c : std::string("{\"a\":1}")) {
    EXPECT_FALSE(filter->done());
    int32_t token = -1;
    for (int32_t id = 0; id < tokenizer().n_vocab() && token < 0; ++id) if (!tokenizer().is_special(id) && tokenizer().token_bytes(id) == std::string(1, c)) token = id;
    ASSERT_GE(token, 0);
    filter->accept(token);
  }
  EXPECT_TRUE(filter->done());
}

TEST_F(Grammar, ASpecialTokenInALiteralIsThatToken) {
  int32_t special = -1;
  for (int32_t id = 0; id < tokenizer().n_vocab(); ++id) if (tokenizer().is_special(id) && id != eos()) special = id;
  if (special < 0) GTEST_SKIP() << "the tokenizer has no other special token";
  const auto filter = compiler().start(compiler().gbnf("root ::= \"" + tokenizer().token_name(special) + "x\""));
  std::vector<uint32_t> mask((static_cast<size_t>(n_vocab()) + 31) / 32, ~0u);
  ASSERT_TRUE(filter->restrict(mask));
  for (int32_t id = 0; id < n_vocab(); ++id) EXPECT_EQ((mask[id / 32] >> (id % 32) & 1) != 0, id == special) << id;
  filter->accept(special);
  EXPECT_FALSE(filter->done());
  // And never where a text may stand.
  const auto text = compiler().start(compiler().json_schema(Json::parse(R"({"type": "string"})")));
  for (int i = 0; i < 2; ++i) {
    std::ranges::fill(mask, ~0u);
    ASSERT_TRUE(text->restrict(mask));
    for (int32_t id = 0; id < n_vocab(); ++id) if (id >= tokenizer().n_vocab() || tokenizer().is_special(id)) EXPECT_FALSE(mask[id / 32] >> (id % 32) & 1) << id;
    for (int32_t id = 0; id < tokenizer().n_vocab(); ++id) {
      if (!tokenizer().is_special(id) && tokenizer().token_bytes(id) == "\"") {
        text->accept(id);
        break;
      }
    }
    if (text->done()) break;
  }
}

// Random schemas out of every keyword, and mutations of good ones: refused with an Error or compiled, and what is compiled makes documents that fit.
TEST_F(Grammar, RandomSchemasAreRefusedOrKept) {
  const Json seeds = read_json_file(RIDGE_SOURCE_DIR "/tests/text/schemas/schemas.json");
  std::mt19937 random(11);
  const auto pick = [&](auto&& list) -> decltype(auto) { return list[random() % std::size(list)]; };
  const std::vector<Json> values = {0, 1, -1, 2.5, 1e9, -1e300, "", "a", "^a+$", "(", "date", true, false, nullptr, Json::array(), Json::object(), Json::array({1, "x"}), "string", "object", "#", "#/$defs/x", Json::array({"a"})};
  const std::vector<const char*> keys = {"type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "multipleOf", "minLength", "maxLength", "pattern", "format", "items", "prefixItems", "minItems", "maxItems", "uniqueItems",
      "contains", "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "dependentRequired"};
  const auto mutate = [&](auto&& self, Json& json, int depth) -> void {
    if (json.is_structured() && !json.empty() && depth < 6 && random() % 3 != 0) {
      auto it = json.begin();
      std::advance(it, static_cast<ptrdiff_t>(random() % json.size()));
      return self(self, *it, depth + 1);
    }
    switch (random() % 4) {
      case 0: json = pick(values); break;
      case 1: if (json.is_object()) json[pick(keys)] = pick(values); else json = Json{{pick(keys), pick(values)}}; break;
      case 2: json = pick(seeds)["schema"]; break;
      default: if (json.is_structured() && !json.empty()) json.erase(json.begin()); else json = pick(values);
    }
  };
  const auto started = std::chrono::steady_clock::now();
  int n_compiled = 0, n_refused = 0;
  for (int i = 0; i < 1500 && std::chrono::steady_clock::now() - started < std::chrono::seconds(20); ++i) {
    Json schema = pick(seeds)["schema"];
    for (unsigned n = 1 + random() % 3; n > 0; --n) mutate(mutate, schema, 0);
    std::shared_ptr<const CompiledGrammar> grammar;
    const auto one = std::chrono::steady_clock::now();
    try {
      grammar = compiler().json_schema(schema);
      ++n_compiled;
    } catch (const Error&) {
      ++n_refused;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - one, std::chrono::seconds(15)) << schema.dump();
    if (!grammar) continue;
    const std::optional<std::string> text = walk(grammar, static_cast<unsigned>(i), 20, 400);
    if (!text) continue;
    const Json document = Json::parse(*text, nullptr, false);
    ASSERT_FALSE(document.is_discarded()) << schema.dump() << "\n" << *text;
    EXPECT_TRUE(Schema(schema, "schema").fits(document, schema)) << schema.dump() << "\n" << *text;
  }
  EXPECT_GT(n_compiled, 20);
  EXPECT_GT(n_refused, 20);
}

// Bounds of numbers, counted out.
TEST(NumberRange, HoldsExactlyTheNumbersBetweenItsBounds) {
  const auto holds = [](const Gbnf& e, const std::string& text) {
    if (e.is_never()) return false;
    const Regex regex("^(?:" + to_regex(e) + ")$", "range");
    RegexSearch search(regex);
    std::vector<Span> found;
    search.find_all(found, text);
    return !found.empty();
  };
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    const int low = static_cast<int>(random() % 400) - 200, high = low + static_cast<int>(random() % 250);
    const bool open_low = random() % 2, open_high = random() % 2;
    const Gbnf e = integers_between({std::to_string(low), open_low}, {std::to_string(high), open_high});
    for (int n = low - 30; n < high + 30; n += 1 + static_cast<int>(random() % 4)) {
      const bool inside = (open_low ? n > low : n >= low) && (open_high ? n < high : n <= high);
      EXPECT_EQ(holds(e, std::to_string(n)), inside) << n << " in " << low << " to " << high;
    }
  }
  for (int i = 0; i < 60; ++i) {             // in hundredths
    const int low = static_cast<int>(random() % 1000) - 500, high = low + static_cast<int>(random() % 700);
    const bool open_low = random() % 2, open_high = random() % 2;
    const auto text = [](int hundredths) { return fmt::format("{}{}.{:02}", hundredths < 0 ? "-" : "", std::abs(hundredths) / 100, std::abs(hundredths) % 100); };
    const Gbnf e = numbers_between({text(low), open_low}, {text(high), open_high});
    for (int n = low - 40; n < high + 40; n += 1 + static_cast<int>(random() % 9)) {
      const bool inside = (open_low ? n > low : n >= low) && (open_high ? n < high : n <= high);
      if (n == 0) continue;                  // has two spellings, of which one is made
      // What is made is inside; between 0.00 and 0.01 of a bound not everything is.
      if (!inside) EXPECT_FALSE(holds(e, text(n))) << text(n) << " in " << text(low) << " to " << text(high);
      else EXPECT_TRUE(holds(e, text(n)) || holds(e, text(n).substr(0, text(n).size() - 1))) << text(n) << " in " << text(low) << " to " << text(high);
    }
  }
  EXPECT_TRUE(integers_between({"5", true}, {"6", true}).is_never());
  EXPECT_TRUE(integers_between({"0.2", false}, {"0.8", false}).is_never());
  EXPECT_FALSE(numbers_between({"0.2", false}, {"0.8", false}).is_never());
  EXPECT_TRUE(numbers_between({"3", false}, {"2", false}).is_never());
  EXPECT_EQ(plain_decimal("1.5e-3", "x"), "0.0015");
  EXPECT_EQ(plain_decimal("-2e3", "x"), "-2000");
  EXPECT_THROW((void)plain_decimal("1e400", "x"), Error);
}

TEST(Regular, APatternCanBeNarrowedToALength) {
  const Gbnf slug = parse_regular("^[a-z]+(-[a-z]+)*$", RegularMatch::search, "pattern").with_length(6, 20);
  ASSERT_FALSE(slug.is_never());
  EXPECT_GE(slug.min_length(), 6);
  EXPECT_LE(slug.max_length(), 20);
  EXPECT_TRUE(parse_regular("^ab$", RegularMatch::search, "pattern").with_length(3, 9).is_never());
}

}  // namespace
}  // namespace ridge
