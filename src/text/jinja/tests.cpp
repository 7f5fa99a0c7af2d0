// jinja2's tests: `x is defined`, `n is divisibleby 3`, and the comparison operators by name for select().
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "text/jinja/ast.h"
#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "base/utf8.h"

namespace ridge::jinja {
namespace {

double remainder(const Value& value, int64_t by) {
  if (by == 0) raise("integer modulo by zero");
  if (value.is_undefined()) throw Raised{value.undefined_message()};
  if (value.is_integral()) return static_cast<double>(modulo(value.integer(), by));
  if (!value.is_float()) raise("unsupported operand type(s) for %: '{}' and 'int'", value.type_name());
  const double m = std::fmod(value.number(), static_cast<double>(by));
  return m != 0 && (m < 0) != (by < 0) ? m + static_cast<double>(by) : m;
}

const Value& argument(const Args& args) {
  if (args.positional.size() != 1 || !args.keyword.empty()) raise("this test takes exactly one argument ({} given)", args.positional.size());
  return args.positional[0];
}

bool is_iterable(const Value& v) { return v.is_undefined() || v.is_text() || v.is_sequence() || v.is_dict(); }

bool equals(Runtime& runtime, const Value& a, const Value& b) {
  runtime.spend(std::min(a.weight(), b.weight()));
  return equal(a, b);
}

bool is_cased(const Value& value, bool upper_case) {
  const std::string text = to_text(value);
  bool any = false;
  for (const char32_t c : utf8::decode(text)) {
    if (upper_case ? is_lower(c) : is_upper(c)) return false;
    any |= upper_case ? is_upper(c) : is_lower(c);
  }
  return any;
}

bool order(const Value& a, const Value& b, CompareOp op) {
  switch (op) {
    case CompareOp::kLess: return less(a, b, "<");
    case CompareOp::kGreater: return less(b, a, ">");
    case CompareOp::kLessEqual: return equal(a, b) ? (less(a, b, "<="), true) : less(a, b, "<=");
    default: return equal(a, b) ? (less(b, a, ">="), true) : less(b, a, ">=");
  }
}

template <CompareOp op>
bool compare(Runtime&, const Value& v, Args& args) { return order(v, argument(args), op); }

}  // namespace

bool takes_argument(std::string_view test) {
  static constexpr std::string_view kThose[] = {"divisibleby", "sameas", "in", "==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", ">=", "ge", "<", "lt", "lessthan", "<=", "le"};
  return std::find(std::begin(kThose), std::end(kThose), test) != std::end(kThose);
}

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> kTests = {
      {"odd", [](Runtime&, const Value& v, Args&) { return remainder(v, 2) == 1; }},
      {"even", [](Runtime&, const Value& v, Args&) { return remainder(v, 2) == 0; }},
      {"divisibleby", [](Runtime&, const Value& v, Args& a) { return remainder(v, as_integer(argument(a))) == 0; }},
      {"defined", [](Runtime&, const Value& v, Args&) { return !v.is_undefined(); }},
      {"undefined", [](Runtime&, const Value& v, Args&) { return v.is_undefined(); }},
      {"filter", [](Runtime&, const Value& v, Args&) { return v.is_text() && find_filter(v.text()); }},
      {"test", [](Runtime&, const Value& v, Args&) { return v.is_text() && find_test(v.text()); }},
      {"none", [](Runtime&, const Value& v, Args&) { return v.is_none(); }},
      {"boolean", [](Runtime&, const Value& v, Args&) { return v.is_bool(); }},
      {"false", [](Runtime&, const Value& v, Args&) { return v.is_bool() && !v.truth(); }},
      {"true", [](Runtime&, const Value& v, Args&) { return v.is_bool() && v.truth(); }},
      {"integer", [](Runtime&, const Value& v, Args&) { return v.is_int(); }},
      {"float", [](Runtime&, const Value& v, Args&) { return v.is_float(); }},
      {"lower", [](Runtime&, const Value& v, Args&) { return is_cased(v, false); }},
      {"upper", [](Runtime&, const Value& v, Args&) { return is_cased(v, true); }},
      {"string", [](Runtime&, const Value& v, Args&) { return v.is_text(); }},
      {"mapping", [](Runtime&, const Value& v, Args&) { return v.is_dict(); }},
      {"number", [](Runtime&, const Value& v, Args&) { return v.is_number(); }},
      {"sequence", [](Runtime&, const Value& v, Args&) { return v.is_undefined() || v.is_text() || v.is_dict() || (v.is_sequence() && v.sequence().is_indexable()); }},
      {"iterable", [](Runtime&, const Value& v, Args&) { return is_iterable(v); }},
      {"callable", [](Runtime&, const Value& v, Args&) { return v.is_undefined() || (v.is_object() && v.object()->is_callable()); }},
      {"sameas", [](Runtime&, const Value& v, Args& a) { return v.is(argument(a)); }},
      {"escaped", [](Runtime&, const Value& v, Args&) { return v.is_markup(); }},
      {"in", [](Runtime& r, const Value& v, Args& a) { return contains(r, argument(a), v); }},
      {"==", [](Runtime& r, const Value& v, Args& a) { return equals(r, v, argument(a)); }},
      {"eq", [](Runtime& r, const Value& v, Args& a) { return equals(r, v, argument(a)); }},
      {"equalto", [](Runtime& r, const Value& v, Args& a) { return equals(r, v, argument(a)); }},
      {"!=", [](Runtime& r, const Value& v, Args& a) { return !equals(r, v, argument(a)); }},
      {"ne", [](Runtime& r, const Value& v, Args& a) { return !equals(r, v, argument(a)); }},
      {">", compare<CompareOp::kGreater>}, {"gt", compare<CompareOp::kGreater>}, {"greaterthan", compare<CompareOp::kGreater>},
      {">=", compare<CompareOp::kGreaterEqual>}, {"ge", compare<CompareOp::kGreaterEqual>},
      {"<", compare<CompareOp::kLess>}, {"lt", compare<CompareOp::kLess>}, {"lessthan", compare<CompareOp::kLess>},
      {"<=", compare<CompareOp::kLessEqual>}, {"le", compare<CompareOp::kLessEqual>}};
  const auto it = kTests.find(name);
  return it == kTests.end() ? nullptr : it->second;
}

}  // namespace ridge::jinja
