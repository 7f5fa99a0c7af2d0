// Small templates over every feature of the language, each with what jinja2 3.1 makes of it (tests/data/jinja/make_cases.py), and the limits that jinja2
// does not have.
#include "text/jinja.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "base/files.h"
#include "text/day_of_the_cases.h"

namespace ridge {
namespace {

std::string render(std::string_view source, const Json& variables = Json::object()) {
  return JinjaTemplate(source, "t.jinja").render(variables, day_of_the_cases());
}

std::string error_of(std::string_view source, const Json& variables = Json::object()) {
  try {
    return "rendered: " + render(source, variables).substr(0, 200);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Jinja, RendersAndRaisesAsJinja2Does) {
  const Json all = read_json_file(RIDGE_SOURCE_DIR "/tests/data/jinja/cases.json");
  int n_cases = 0, n_errors = 0;
  for (const Json& c : all["cases"]) {
    SCOPED_TRACE(c["template"].get<std::string>());
    ++n_cases;
    try {
      const std::string out = render(c["template"].get<std::string>(), all["variables"]);
      if (c.contains("error")) {
        ADD_FAILURE() << "should raise " << c["error"] << ", gave " << out;
      } else {
        EXPECT_EQ(out, c["out"].get<std::string>());
      }
    } catch (const Error& error) {
      ++n_errors;
      EXPECT_TRUE(c.contains("error")) << error.what();
    }
  }
  EXPECT_GE(n_cases, 250);
  EXPECT_GE(n_errors, 50);
}

TEST(Jinja, AnErrorNamesTheTemplateAndTheLine) {
  EXPECT_EQ(error_of("a\n{{ raise_exception('no system role') }}"), "t.jinja, line 2: no system role");
  EXPECT_EQ(error_of("a\n\n{% nope %}"), "t.jinja, line 3: Encountered unknown tag 'nope'.");
  EXPECT_EQ(error_of("{% if x %}\n\n{{ y.z }}\n{% endif %}", {{"x", 1}}), "t.jinja, line 3: 'y' is undefined");
  EXPECT_EQ(error_of("{{ d.append }}{{ l.append(1) }}", {{"d", 1}, {"l", Json::array()}}),
            "t.jinja, line 1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_NE(error_of("{% include 'x' %}").find("not supported"), std::string::npos);
}

TEST(Jinja, ATemplateCannotRunForEver) {
  const std::string thousand = "{% for a in range(1000) %}";
  EXPECT_NE(error_of(thousand + thousand + thousand + "{% endfor %}{% endfor %}{% endfor %}").find("steps"), std::string::npos);
  EXPECT_NE(error_of("{{ range(100001) }}").find("Range too big"), std::string::npos);
  EXPECT_NE(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("recursion"), std::string::npos);
  EXPECT_NE(error_of("{% macro f(n) %}{{ f(n) ~ f(n) }}{% endmacro %}{{ f(1) }}").find("recursion"), std::string::npos);
  EXPECT_NE(error_of("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}").find("recursion"), std::string::npos);
}

TEST(Jinja, ATemplateCannotTakeAllMemory) {
  EXPECT_NE(error_of("{{ 'abcdefgh' * 1000000000 }}").find("text longer"), std::string::npos);
  EXPECT_NE(error_of("{{ [1] * 1000000000 }}").find("steps"), std::string::npos);
  EXPECT_NE(error_of("{{ '%9999999999d' % 1 }}").find("larger than"), std::string::npos);
  EXPECT_NE(error_of("{{ 'a'.ljust(1000000000) }}").find("text longer"), std::string::npos);
  EXPECT_NE(error_of("{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}").find("text longer"), std::string::npos);
  EXPECT_NE(error_of("{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}").find("elements"), std::string::npos);
  EXPECT_NE(error_of("{% set ns = namespace(l=[]) %}{% for i in range(9000) %}{% set ns.l = [ns.l] %}{% endfor %}").find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}").find("recursion"), std::string::npos);
  const std::string hundred = "{% for a in range(9999) %}";
  EXPECT_NE(error_of("{% set s = 'x' * 1000000 %}" + hundred + "{{ s }}{% endfor %}").find("text longer"), std::string::npos);
}

TEST(Jinja, NestingInTheSourceIsBounded) {
  const auto times = [](std::string_view text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  EXPECT_NE(error_of("{{ " + times("(", 5000) + "1" + times(")", 5000) + " }}").find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of("{{ " + times("[", 5000)).find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of("{{ " + times("not ", 5000) + "1 }}").find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of("{{ " + times("-", 5000) + "1 }}").find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of(times("{% if 1 %}", 5000)).find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of("{{ 1" + times(" + 1", 100000) + " }}").find("operations"), std::string::npos);
  EXPECT_NE(error_of("{{ x" + times(".a", 100000) + " }}").find("operations"), std::string::npos);
  EXPECT_NE(error_of("{{ x" + times("|list", 100000) + " }}").find("operations"), std::string::npos);
  EXPECT_NE(error_of("{{ 1" + times(" if 1 else 1", 5000) + " }}").find("nested deeper"), std::string::npos);
  EXPECT_EQ(render("{{ 1" + times(" ~ 1", 5000) + " }}"), times("1", 5001));
  EXPECT_EQ(render("{{ 1" + times(" + 1", 300) + " }}"), "301");
}

TEST(Jinja, IntegersThatPythonWouldGrowAreRefused) {
  EXPECT_NE(error_of("{{ 9223372036854775807 + 1 }}").find("64 bits"), std::string::npos);
  EXPECT_NE(error_of("{{ 10 ** 30 }}").find("64 bits"), std::string::npos);
  EXPECT_NE(error_of("{{ 99999999999999999999 }}").find("64 bits"), std::string::npos);
  EXPECT_NE(error_of("{{ x }}", {{"x", UINT64_MAX}}).find("64 bits"), std::string::npos);
}

TEST(Jinja, OneTemplateRendersManyTimesWithoutMemory) {
  const JinjaTemplate t("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + x %}{% macro m() %}{{ ns.n }}{% endmacro %}{{ m() }}", "t");
  EXPECT_EQ(t.render({{"x", 1}}), "1");
  EXPECT_EQ(t.render({{"x", 2}}), "2");
}

TEST(Jinja, IllFormedTextBecomesReplacementCharacters) {
  EXPECT_EQ(render("a\xFF{{ x }}", {{"x", "b"}}), "a\xEF\xBF\xBD" "b");
}

}  // namespace
}  // namespace ridge
