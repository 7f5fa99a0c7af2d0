// Any bytes either render or throw Error: mutations of the templates under tests/data and soups of tokens, from a fixed seed, for three seconds.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/files.h"
#include "text/jinja.h"

namespace ridge {
namespace {

using Random = std::mt19937_64;

size_t below(Random& random, size_t n) { return random() % n; }

constexpr std::string_view kTokens[] = {
    "{{ ", " }}", "{% ", " %}", "{%- ", " -%}", "{# ", " #}", "{{- ", " -}}", "if ", "elif ", "else ", "endif ", "for ", " in ", "endfor ", "set ", "endset ", "macro f(a, b=1) ",
    "endmacro ", "call f() ", "endcall ", "filter upper ", "endfilter ", "with x = 1 ", "endwith ", "generation ", "endgeneration ", "raw ", "endraw ", "break ", "continue ", "recursive ",
    "loop", "loop.index", "loop(xs)", "x", "xs", "d", "messages", "namespace(a=1)", "ns", "ns.a", "range(9)", "f(1)", "caller()", "varargs", "kwargs", "missing", "none", "true",
    "1", "-7", "2.5", "1e300", "9223372036854775807", "'a'", "\"é%s\"", "'{:>5}'", "+", "-", "*", "/", "//", "%", "**", "~", "==", "<", ">=", " in ", " not ", " and ", " or ", " is ",
    "defined", "string", "odd", "divisibleby", "(", ")", "[", "]", "{", "}", ":", ",", ".", "=", "|", "|join(',')", "|tojson", "|tojson(indent=2)", "|sort", "|map('upper')", "|list",
    "|groupby('role')", "|batch(2)", "|indent", "|replace('a','b')", "|int", "|round", "|wordwrap(3)", "|truncate(3)", "|dictsort", "|format(1)", "|default(1)", ".items()", ".split()",
    ".format(1)", ".strip()", ".replace('a', 'bb')", ".get('a')", ".append(1)", "[::-1]", "[1:]", "[-1]", "['a']", "\n", "  ", "\xC3", "text"};

std::string mutate(std::string source, Random& random) {
  for (size_t n = 1 + below(random, 4); n > 0 && !source.empty(); --n) {
    const size_t at = below(random, source.size()), length = 1 + below(random, 24);
    switch (below(random, 5)) {
      case 0: source.erase(at, length); break;
      case 1: source.insert(at, kTokens[below(random, std::size(kTokens))]); break;
      case 2: source.insert(at, source.substr(below(random, source.size()), length)); break;
      case 3: source[at] = static_cast<char>(random()); break;
      default: source.replace(at, length, kTokens[below(random, std::size(kTokens))]);
    }
  }
  return source;
}

std::string soup(Random& random) {
  std::string source;
  const bool expression = below(random, 2);
  for (size_t n = 1 + below(random, 30); n > 0; --n) {
    const auto token = kTokens[below(random, std::size(kTokens))];
    if (!expression || token.find_first_of("{}%#\n") == std::string_view::npos) source += token;
  }
  return expression ? "{{ " + source + " }}" : source;
}

TEST(JinjaFuzz, AnyTemplateRendersOrThrowsError) {
  namespace fs = std::filesystem;
  const std::string folder = RIDGE_SOURCE_DIR "/tests/data/jinja";
  std::vector<std::string> seeds;
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".jinja") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) seeds.push_back(read_file(path));
  const Json cases = read_json_file(folder + "/cases.json");
  for (const Json& c : cases["cases"]) seeds.push_back(c["template"].get<std::string>());
  Json variables = cases["variables"];
  variables["x"] = "a b";
  variables["tools"] = nullptr;
  variables["add_generation_prompt"] = true;

  Random random(20261115);
  const auto begin = std::chrono::steady_clock::now();
  int n_rendered = 0, n_refused = 0;
  double slowest = 0;
  while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(3)) {
    const std::string source = below(random, 3) == 0 ? soup(random) : mutate(seeds[below(random, seeds.size())], random);
    const auto started = std::chrono::steady_clock::now();
    try {
      JinjaTemplate(source, "fuzz").render(variables);
      ++n_rendered;
    } catch (const Error&) {
      ++n_refused;
    }
    slowest = std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  }
  EXPECT_GT(n_rendered, 100);
  EXPECT_GT(n_refused, 100);
  EXPECT_LT(slowest, 30) << "a template ran far longer than its budget of steps allows";
  RecordProperty("rendered", n_rendered);
  RecordProperty("refused", n_refused);
}

}  // namespace
}  // namespace ridge
