// Arithmetic and containment as Python has them. Integers are 64 bits: where Python would grow one, the template gets an error.
#include <algorithm>
#include <cmath>

#include "text/jinja/ast.h"
#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"

namespace ridge::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void raise_unsupported(BinaryOp op, const Value& a, const Value& b) {
  raise("unsupported operand type(s) for {}: '{}' and '{}'", kSymbols[static_cast<int>(op)], a.type_name(), b.type_name());
}

int64_t checked(bool overflow, int64_t value) {
  if (overflow) raise("integer result does not fit 64 bits");
  return value;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == -1) return checked(a == INT64_MIN, -a);
  const int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

double float_modulo(double a, double b) {
  double m = std::fmod(a, b);
  if (m == 0) return std::copysign(0.0, b);
  return (m < 0) != (b < 0) ? m + b : m;
}

Value power(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral() && b.integer() >= 0) {
    const int64_t base = a.integer(), exponent = b.integer();
    if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    int64_t result = 1;
    bool overflow = false;
    for (int64_t i = 0; i < exponent && !overflow; ++i) overflow = __builtin_mul_overflow(result, base, &result);
    return checked(overflow, result);
  }
  const double x = a.number(), y = b.number();
  if (x == 0 && y < 0) raise("0.0 cannot be raised to a negative power");
  if (x < 0 && y != std::floor(y)) raise("a negative number to a fractional power is complex, which is not supported");
  const double result = std::pow(x, y);
  if (std::isinf(result) && !std::isinf(x) && !std::isinf(y)) raise("(34, 'Numerical result out of range')");
  return result;
}

Value arithmetic(BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kPower) return power(a, b);
  const bool integral = a.is_integral() && b.is_integral();
  if (op >= BinaryOp::kDivide && b.number() == 0) {
    if (op == BinaryOp::kDivide) raise("{}", integral ? "division by zero" : "float division by zero");
    raise("{}", !integral ? (op == BinaryOp::kModulo ? "float modulo" : "float floor division by zero") : "integer division or modulo by zero");
  }
  if (integral && op != BinaryOp::kDivide) {
    const int64_t x = a.integer(), y = b.integer();
    int64_t result = 0;
    bool overflow = false;                   // of its own: arguments are evaluated in any order
    switch (op) {
      case BinaryOp::kAdd: overflow = __builtin_add_overflow(x, y, &result); break;
      case BinaryOp::kSubtract: overflow = __builtin_sub_overflow(x, y, &result); break;
      case BinaryOp::kMultiply: overflow = __builtin_mul_overflow(x, y, &result); break;
      case BinaryOp::kFloorDivide: return floor_divide(x, y);
      default: return modulo(x, y);
    }
    return checked(overflow, result);
  }
  const double x = a.number(), y = b.number();
  switch (op) {
    case BinaryOp::kAdd: return x + y;
    case BinaryOp::kSubtract: return x - y;
    case BinaryOp::kMultiply: return x * y;
    case BinaryOp::kDivide: return x / y;
    case BinaryOp::kFloorDivide: return std::nearbyint((x - float_modulo(x, y)) / y);
    default: return float_modulo(x, y);
  }
}

Value repeat(Runtime& runtime, const Value& what, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (what.is_text()) {
    const std::string& text = what.text();
    if (!text.empty() && times > static_cast<int64_t>(kMaxTextBytes / text.size())) runtime.check_text(kMaxTextBytes + 1);
    std::string out;
    out.reserve(text.size() * times);
    for (int64_t i = 0; i < times && !text.empty(); ++i) out += text;
    return runtime.text(std::move(out), what.is_markup());
  }
  const auto& items = what.sequence().items;
  if (!items.empty() && times > kMaxSteps / static_cast<int64_t>(items.size())) runtime.spend(kMaxSteps + 1);
  runtime.spend(times * static_cast<int64_t>(items.size()));
  std::vector<Value> out;
  for (int64_t i = 0; i < times && !items.empty(); ++i) out.insert(out.end(), items.begin(), items.end());
  return make_sequence(what.sequence().is_tuple() ? Flavor::kTuple : Flavor::kList, std::move(out));
}

bool is_list_or_tuple(const Value& v) { return v.is_sequence() && v.sequence().flavor <= Flavor::kGroup; }

}  // namespace

int64_t modulo(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t m = a % b;
  return m != 0 && ((m < 0) != (b < 0)) ? m + b : m;
}

Value negate(const Value& value) {
  if (value.is_undefined()) throw Raised{value.undefined_message()};
  if (value.is_integral()) return checked(value.integer() == INT64_MIN, -value.integer());
  if (value.is_float()) return -value.number();
  raise("bad operand type for unary -: '{}'", value.type_name());
}

Value add(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined()) throw Raised{(a.is_undefined() ? a : b).undefined_message()};
  if (a.is_text() && b.is_text()) {
    runtime.check_text(a.text().size() + b.text().size());
    if (a.is_markup() || b.is_markup()) return runtime.text(soft_escape(a) + soft_escape(b), true);
    return runtime.text(a.text() + b.text());
  }
  if (a.is_number() && b.is_number()) return arithmetic(BinaryOp::kAdd, a, b);
  if (is_list_or_tuple(a) && is_list_or_tuple(b) && a.sequence().is_tuple() == b.sequence().is_tuple()) {
    std::vector<Value> items = a.sequence().items;
    items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
    runtime.spend(static_cast<int64_t>(items.size()));
    return make_sequence(a.sequence().is_tuple() ? Flavor::kTuple : Flavor::kList, std::move(items));
  }
  if (a.is_text() || is_list_or_tuple(a)) {
    const std::string type = a.is_text() ? "str" : a.sequence().is_tuple() ? "tuple" : "list";
    raise("can only concatenate {} (not \"{}\") to {}", type, b.type_name(), type);
  }
  raise_unsupported(BinaryOp::kAdd, a, b);
}

Value binary(Runtime& runtime, int which, const Value& a, const Value& b) {
  const auto op = static_cast<BinaryOp>(which);
  if (op == BinaryOp::kAdd) return add(runtime, a, b);
  if (op == BinaryOp::kModulo && a.is_text()) return format_percent(runtime, a, b);
  if (a.is_undefined() || b.is_undefined()) throw Raised{(a.is_undefined() ? a : b).undefined_message()};
  if (a.is_number() && b.is_number()) return arithmetic(op, a, b);
  if (op == BinaryOp::kMultiply) {
    const auto repeats = [](const Value& v) { return v.is_text() || is_list_or_tuple(v); };
    if (repeats(a) && b.is_integral()) return repeat(runtime, a, b.integer());
    if (repeats(b) && a.is_integral()) return repeat(runtime, b, a.integer());
    if (repeats(a) || repeats(b)) raise("can't multiply sequence by non-int of type '{}'", (repeats(a) ? b : a).type_name());
  }
  raise_unsupported(op, a, b);
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (item.is_undefined()) raise("'in <string>' requires string as left operand, not Undefined");
    if (!item.is_text()) raise("'in <string>' requires string as left operand, not {}", item.type_name());
    runtime.spend(static_cast<int64_t>(container.text().size() / 32));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is_dict()) {
    hash_of(item);
    runtime.spend(item.weight());
    return container.dict().find(item) != nullptr;
  }
  if (container.is_undefined()) return false;
  if (!container.is_sequence()) raise("argument of type '{}' is not iterable", container.type_name());
  const Sequence& s = container.sequence();
  for (size_t i = s.n_consumed; i < s.items.size(); ++i) {
    runtime.spend(1 + std::min(item.weight(), s.items[i].weight()));
    if (s.flavor == Flavor::kGenerator) s.n_consumed = i + 1;
    if (equal(s.items[i], item)) return true;
  }
  return false;
}

}  // namespace ridge::jinja
