// Expressions. Each kind has its own function, so that the frame of evaluate(), which recurses, stays small.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/interpreter.h"
#include "base/utf8.h"

namespace ridge::jinja {

Value Interpreter::evaluate(const Expr& e) {
  const Deeper deeper(*this);
  line_ = e.line;
  switch (e.kind) {
    case ExprKind::kConstant: return e.constant;
    case ExprKind::kName: return evaluate_name(e);
    case ExprKind::kList: case ExprKind::kTuple: case ExprKind::kDict: return evaluate_container(e);
    case ExprKind::kAttribute: return runtime_.attribute(evaluate(*e.operands[0]), e.name);
    case ExprKind::kItem: return evaluate_item(e);
    case ExprKind::kSlice: raise("a slice stands alone in its brackets");
    case ExprKind::kCall: return evaluate_call(e);
    case ExprKind::kFilter: return evaluate_filter(e);
    case ExprKind::kTest: return evaluate_test(e);
    case ExprKind::kNot: return !evaluate(*e.operands[0]).truth();
    case ExprKind::kNegate: return negate(evaluate(*e.operands[0]));
    case ExprKind::kPlus: {
      Value value = evaluate(*e.operands[0]);
      if (value.is_undefined()) throw Raised{value.undefined_message()};
      if (!value.is_number()) raise("bad operand type for unary +: '{}'", value.type_name());
      return value.is_bool() ? Value(value.integer()) : value;
    }
    case ExprKind::kBinary: return evaluate_binary(e);
    case ExprKind::kConcat: return evaluate_concat(e);
    case ExprKind::kCompare: return evaluate_compare(e);
    case ExprKind::kAnd: {
      Value left = evaluate(*e.operands[0]);
      return left.truth() ? evaluate(*e.operands[1]) : left;
    }
    case ExprKind::kOr: {
      Value left = evaluate(*e.operands[0]);
      return left.truth() ? left : evaluate(*e.operands[1]);
    }
    case ExprKind::kConditional: return evaluate_conditional(e);
  }
  return {};
}

Value Interpreter::evaluate_name(const Expr& e) {
  for (const Scope* s = scope_.get(); s; s = s->parent.get()) {
    const auto it = s->names.find(e.name);
    if (it != s->names.end()) return it->second;
  }
  return Value::undefined(fmt::format("{} is undefined", repr_of_text(e.name)));
}

Value Interpreter::evaluate_container(const Expr& e) {
  if (e.kind == ExprKind::kDict) {
    auto dict = std::make_shared<Dict>();
    for (size_t i = 0; i < e.operands.size(); i += 2) {
      const Value key = evaluate(*e.operands[i]);
      dict->set(key, evaluate(*e.operands[i + 1]));
    }
    return make_dict(std::move(dict));
  }
  std::vector<Value> items;
  items.reserve(e.operands.size());
  for (const ExprPtr& operand : e.operands) items.push_back(evaluate(*operand));
  return e.kind == ExprKind::kList ? make_list(std::move(items)) : make_tuple(std::move(items));
}

Value Interpreter::evaluate_item(const Expr& e) {
  const Value object = evaluate(*e.operands[0]);
  if (e.operands[1]->kind == ExprKind::kSlice) return evaluate_slice(object, *e.operands[1]);
  const Value key = evaluate(*e.operands[1]);
  line_ = e.line;
  return runtime_.item(object, key);
}

Value Interpreter::evaluate_slice(const Value& object, const Expr& slice) {
  std::optional<int64_t> parts[3];
  for (int i = 0; i < 3; ++i) {
    if (!slice.operands[i]) continue;
    const Value part = evaluate(*slice.operands[i]);
    if (part.is_none()) continue;
    if (!part.is_integral()) raise("slice indices must be integers or None or have an __index__ method");
    parts[i] = part.integer();
  }
  if (object.is_undefined()) throw Raised{object.undefined_message()};
  if (object.is_text()) {
    const std::string& text = object.text();
    runtime_.spend(static_cast<int64_t>(text.size() / 32));
    const Slice s = resolve_slice(n_characters(text), parts[0], parts[1], parts[2]);
    if (s.count == 0) return runtime_.text("", object.is_markup());
    if (s.step == 1) {
      const size_t begin = byte_offset(text, s.start);
      return runtime_.text(text.substr(begin, byte_offset(std::string_view(text).substr(begin), s.count)), object.is_markup());
    }
    const std::u32string all = utf8::decode(text);
    std::string out;
    for (int64_t i = 0; i < s.count; ++i) utf8::append(out, all[static_cast<size_t>(s.start + i * s.step)]);
    return runtime_.text(std::move(out), object.is_markup());
  }
  if (!object.is_sequence() || !object.sequence().is_indexable()) raise("'{}' object is not subscriptable with a slice", object.type_name());
  const auto& items = object.sequence().items;
  const Slice s = resolve_slice(static_cast<int64_t>(items.size()), parts[0], parts[1], parts[2]);
  runtime_.spend(s.count);
  std::vector<Value> out;
  out.reserve(static_cast<size_t>(s.count));
  for (int64_t i = 0; i < s.count; ++i) out.push_back(items[static_cast<size_t>(s.start + i * s.step)]);
  const Flavor flavor = object.sequence().flavor;
  return make_sequence(flavor == Flavor::kGroup ? Flavor::kTuple : flavor, std::move(out));
}

Args Interpreter::evaluate_arguments(const Expr& e) {
  Args args;
  for (size_t i = 1; i < e.operands.size(); ++i) args.positional.push_back(evaluate(*e.operands[i]));
  for (const auto& [name, value] : e.keywords) args.keyword.emplace_back(name, evaluate(*value));
  if (e.star) {
    for (Value& value : runtime_.iterate(evaluate(*e.star))) args.positional.push_back(std::move(value));
  }
  if (e.star_star) {
    const Value more = evaluate(*e.star_star);
    if (!more.is_dict()) raise("argument after ** must be a mapping, not {}", more.type_name());
    runtime_.spend(static_cast<int64_t>(more.dict().items.size()));
    for (const auto& [key, value] : more.dict().items) {
      if (!key.is_text()) raise("keywords must be strings");
      const bool given = std::any_of(e.keywords.begin(), e.keywords.end(), [&](const auto& k) { return k.first == key.text(); });
      if (given) raise("got multiple values for keyword argument '{}'", key.text());
      args.keyword.emplace_back(key.text(), value);
    }
  }
  return args;
}

Value Interpreter::evaluate_call(const Expr& e, const Value* caller) {
  const Value callee = evaluate(*e.operands[0]);
  Args args = evaluate_arguments(e);
  if (caller) args.keyword.emplace_back("caller", *caller);
  line_ = e.line;
  return runtime_.call(callee, args);
}

Value Interpreter::evaluate_filter(const Expr& e, const Value* subject) {
  Value value;
  if (e.operands[0]) {
    const bool carries_on = subject && e.operands[0]->kind == ExprKind::kFilter;
    value = carries_on ? evaluate_filter(*e.operands[0], subject) : evaluate(*e.operands[0]);
  } else if (subject) {
    value = *subject;
  }
  Args args = evaluate_arguments(e);
  line_ = e.line;
  const Filter filter = find_filter(e.name);
  if (!filter) raise("No filter named '{}' found.", e.name);
  return filter(runtime_, value, args);
}

Value Interpreter::evaluate_test(const Expr& e) {
  const Value value = evaluate(*e.operands[0]);
  Args args = evaluate_arguments(e);
  line_ = e.line;
  const Test test = find_test(e.name);
  if (!test) raise("No test named '{}' found.", e.name);
  if (!takes_argument(e.name) && !(args.positional.empty() && args.keyword.empty())) raise("the test '{}' takes no argument", e.name);
  return test(runtime_, value, args);
}

Value Interpreter::evaluate_concat(const Expr& e) {
  std::string out;
  for (const ExprPtr& operand : e.operands) {
    const Value value = evaluate(*operand);
    runtime_.spend(value.weight());
    out += value.is_text() ? value.text() : to_text(value);
    runtime_.check_text(out.size());
  }
  return runtime_.text(std::move(out));
}

Value Interpreter::evaluate_binary(const Expr& e) {
  const Value a = evaluate(*e.operands[0]);
  const Value b = evaluate(*e.operands[1]);
  line_ = e.line;
  return binary(runtime_, static_cast<int>(e.binary), a, b);
}

Value Interpreter::evaluate_conditional(const Expr& e) {
  if (evaluate(*e.operands[0]).truth()) return evaluate(*e.operands[1]);
  if (e.operands[2]) return evaluate(*e.operands[2]);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
}

bool Interpreter::compare(CompareOp op, const Value& a, const Value& b) {
  if (op == CompareOp::kIn || op == CompareOp::kNotIn) return contains(runtime_, b, a) == (op == CompareOp::kIn);
  runtime_.spend(std::min(a.weight(), b.weight()));
  switch (op) {
    case CompareOp::kEqual: return equal(a, b);
    case CompareOp::kNotEqual: return !equal(a, b);
    case CompareOp::kLess: return less(a, b, "<");
    case CompareOp::kGreater: return less(b, a, ">");
    case CompareOp::kLessEqual: return less(a, b, "<=") || equal(a, b);
    default: return less(b, a, ">=") || equal(a, b);
  }
}

Value Interpreter::evaluate_compare(const Expr& e) {
  Value left = evaluate(*e.operands[0]);
  for (size_t i = 0; i < e.compares.size(); ++i) {
    Value right = evaluate(*e.operands[i + 1]);
    line_ = e.line;
    if (!compare(e.compares[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

}  // namespace ridge::jinja
