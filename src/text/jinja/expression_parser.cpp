// See the header for the order of precedence. Every node knows the depth of its tree: `a + b + c` loops here but recurses when it is evaluated.
#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>

#include "text/jinja/builtins.h"

namespace ridge::jinja {

bool ExpressionParser::take_name(std::string_view name) {
  if (!at_name(name)) return false;
  advance();
  return true;
}

bool ExpressionParser::take_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  advance();
  return true;
}

void ExpressionParser::expect(TokenType type, std::string_view what) {
  if (peek().type != type) fail(peek().line, peek().type == TokenType::kEnd ? fmt::format("unexpected end of template, expected {}", what)
                                                                            : fmt::format("expected token '{}', got '{}'", what, peek().text));
  advance();
}

void ExpressionParser::expect_operator(std::string_view op) {
  if (!take_operator(op)) fail(peek().line, fmt::format("expected token '{}', got '{}'", op, peek().type == TokenType::kEnd ? "end of template" : peek().text));
}

std::string ExpressionParser::expect_name() {
  std::string name = peek().text;
  expect(TokenType::kName, "name");
  return name;
}

void ExpressionParser::finish_names() {
  if (!unknown_.empty()) fail(unknown_[0].line, unknown_[0].message);
}

void ExpressionParser::adopt(Expr& parent, ExprPtr child) const {
  if (child) parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMaxExpressionDepth) fail(parent.line, fmt::format("an expression with more than {} operations one inside another", kMaxExpressionDepth));
  parent.operands.push_back(std::move(child));
}

ExprPtr ExpressionParser::make(ExprKind kind, int line, ExprPtr a, ExprPtr b) const {
  auto e = std::make_unique<Expr>(Expr{.kind = kind, .line = line});
  if (a) adopt(*e, std::move(a));
  if (b) adopt(*e, std::move(b));
  return e;
}

ExprPtr ExpressionParser::parse_expression() {
  const Nested nested(*this);
  const int line = peek().line;
  const size_t n_unknown = unknown_.size();
  ExprPtr e = parse_or();
  while (take_name("if")) {
    auto conditional = make(ExprKind::kConditional, line);
    ExprPtr condition = parse_or();
    adopt(*conditional, std::move(condition));
    adopt(*conditional, std::move(e));
    adopt(*conditional, take_name("else") ? parse_expression() : nullptr);
    e = std::move(conditional);
    unknown_.resize(std::min(unknown_.size(), n_unknown));
  }
  return e;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr e = parse_and();
  while (at_name("or")) {
    const int line = peek().line;
    advance();
    e = make(ExprKind::kOr, line, std::move(e), parse_and());
  }
  return e;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr e = parse_not();
  while (at_name("and")) {
    const int line = peek().line;
    advance();
    e = make(ExprKind::kAnd, line, std::move(e), parse_not());
  }
  return e;
}

ExprPtr ExpressionParser::parse_not() {
  const int line = peek().line;
  if (!take_name("not")) return parse_compare();
  const Nested nested(*this);
  return make(ExprKind::kNot, line, parse_not());
}

ExprPtr ExpressionParser::parse_compare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},   {"!=", CompareOp::kNotEqual},  {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual}};
  ExprPtr first = parse_sum();
  ExprPtr compare;
  while (true) {
    const int line = peek().line;
    std::optional<CompareOp> op;
    for (const auto& [text, kind] : kOps) {
      if (at_operator(text)) op = kind;
    }
    if (at_name("in")) op = CompareOp::kIn;
    if (at_name("not") && at_name("in", 1)) {
      advance();
      op = CompareOp::kNotIn;
    }
    if (!op) return compare ? std::move(compare) : std::move(first);
    advance();
    if (!compare) compare = make(ExprKind::kCompare, line, std::move(first));
    compare->compares.push_back(*op);
    adopt(*compare, parse_sum());
  }
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr e = parse_concat();
  while (at_operator("+") || at_operator("-")) {
    const BinaryOp op = at_operator("+") ? BinaryOp::kAdd : BinaryOp::kSubtract;
    const int line = peek().line;
    advance();
    e = make(ExprKind::kBinary, line, std::move(e), parse_concat());
    e->binary = op;
  }
  return e;
}

ExprPtr ExpressionParser::parse_concat() {
  const int line = peek().line;
  ExprPtr e = parse_product();
  if (!at_operator("~")) return e;
  ExprPtr concat = make(ExprKind::kConcat, line, std::move(e));
  while (take_operator("~")) adopt(*concat, parse_product());
  return concat;
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr e = parse_power();
  while (true) {
    BinaryOp op;
    if (at_operator("*")) op = BinaryOp::kMultiply;
    else if (at_operator("/")) op = BinaryOp::kDivide;
    else if (at_operator("//")) op = BinaryOp::kFloorDivide;
    else if (at_operator("%")) op = BinaryOp::kModulo;
    else return e;
    const int line = peek().line;
    advance();
    e = make(ExprKind::kBinary, line, std::move(e), parse_power());
    e->binary = op;
  }
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr e = parse_unary();
  while (at_operator("**")) {
    const int line = peek().line;
    advance();
    e = make(ExprKind::kBinary, line, std::move(e), parse_unary());
    e->binary = BinaryOp::kPower;
  }
  return e;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const int line = peek().line;
  ExprPtr e;
  if (at_operator("-") || at_operator("+")) {
    const Nested nested(*this);
    const ExprKind kind = at_operator("-") ? ExprKind::kNegate : ExprKind::kPlus;
    advance();
    e = make(kind, line, parse_unary(false));
  } else {
    e = parse_primary();
  }
  e = parse_postfix(std::move(e));
  return with_filters ? parse_filters_and_tests(std::move(e)) : std::move(e);
}

ExprPtr ExpressionParser::parse_primary() {
  const Token& token = peek();
  ExprPtr e = make(ExprKind::kConstant, token.line);
  switch (token.type) {
    case TokenType::kName:
      advance();
      if (token.text == "true" || token.text == "True") {
        e->constant = true;
      } else if (token.text == "false" || token.text == "False") {
        e->constant = false;
      } else if (token.text != "none" && token.text != "None") {
        e->kind = ExprKind::kName;
        e->name = token.text;
        mentions_.varargs |= token.text == "varargs";
        mentions_.kwargs |= token.text == "kwargs";
        mentions_.caller |= token.text == "caller";
      }
      return e;
    case TokenType::kString: {
      std::string text;
      while (peek().type == TokenType::kString) {
        text += peek().text;
        advance();
      }
      e->constant = Value(std::move(text));
      return e;
    }
    case TokenType::kInteger: case TokenType::kFloat: return parse_number();
    default: break;
  }
  if (take_operator("(")) {
    e = parse_tuple(true, true);
    expect_operator(")");
    return e;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  fail(token.line, token.type == TokenType::kEnd ? "unexpected end of template" : fmt::format("unexpected '{}'", token.text));
}

ExprPtr ExpressionParser::parse_number() {
  const Token& token = peek();
  ExprPtr e = make(ExprKind::kConstant, token.line);
  advance();
  std::string_view digits = token.text;
  if (token.type == TokenType::kFloat) {
    double value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    e->constant = value;
    return e;
  }
  int base = 10;
  if (digits.size() > 1 && digits[0] == '0' && !(digits[1] >= '0' && digits[1] <= '9')) {
    base = (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  } else if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string_view::npos) {
    fail(token.line, fmt::format("'{}' is not a number: leading zeros are not allowed", token.text));
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) fail(token.line, fmt::format("integer '{}' is malformed or does not fit 64 bits", token.text));
  e->constant = value;
  return e;
}

bool ExpressionParser::at_tuple_end() const {
  return peek().type == TokenType::kVariableEnd || peek().type == TokenType::kBlockEnd || at_operator(")") || at_name("recursive");
}

ExprPtr ExpressionParser::parse_tuple(bool with_conditional, bool explicit_parentheses) {
  const Nested nested(*this);
  const int line = peek().line;
  std::vector<ExprPtr> elements;
  bool is_tuple = false;
  while (true) {
    if (!elements.empty()) expect_operator(",");
    if (at_tuple_end()) break;
    elements.push_back(with_conditional ? parse_expression() : parse_or());
    if (!at_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !elements.empty()) return std::move(elements[0]);
  if (!is_tuple && !explicit_parentheses) fail(peek().line, fmt::format("Expected an expression, got '{}'", peek().text));
  ExprPtr e = make(ExprKind::kTuple, line);
  for (ExprPtr& element : elements) adopt(*e, std::move(element));
  return e;
}

ExprPtr ExpressionParser::parse_list() {
  ExprPtr e = make(ExprKind::kList, peek().line);
  advance();
  while (!at_operator("]")) {
    if (!e->operands.empty()) expect_operator(",");
    if (at_operator("]")) break;
    adopt(*e, parse_expression());
  }
  expect_operator("]");
  return e;
}

ExprPtr ExpressionParser::parse_dict() {
  ExprPtr e = make(ExprKind::kDict, peek().line);
  advance();
  while (!at_operator("}")) {
    if (!e->operands.empty()) expect_operator(",");
    if (at_operator("}")) break;
    adopt(*e, parse_expression());
    expect_operator(":");
    adopt(*e, parse_expression());
  }
  expect_operator("}");
  return e;
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr e) {
  while (true) {
    if (at_operator(".") || at_operator("[")) {
      e = parse_subscript(std::move(e));
    } else if (at_operator("(")) {
      e = make(ExprKind::kCall, peek().line, std::move(e));
      parse_arguments(*e);
    } else {
      return e;
    }
  }
}

ExprPtr ExpressionParser::parse_filters_and_tests(ExprPtr e) {
  while (true) {
    if (at_operator("|")) {
      e = parse_filters(std::move(e), false);
    } else if (at_name("is")) {
      e = parse_test(std::move(e));
    } else if (at_operator("(")) {
      e = make(ExprKind::kCall, peek().line, std::move(e));
      parse_arguments(*e);
    } else {
      return e;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = peek().line;
  if (take_operator(".")) {
    if (peek().type == TokenType::kInteger) return make(ExprKind::kItem, line, std::move(object), parse_number());
    if (peek().type != TokenType::kName) fail(peek().line, "expected name or number");
    ExprPtr e = make(ExprKind::kAttribute, line, std::move(object));
    e->name = expect_name();
    return e;
  }
  expect_operator("[");
  ExprPtr tuple = make(ExprKind::kTuple, line);
  while (!at_operator("]")) {
    if (!tuple->operands.empty()) expect_operator(",");
    adopt(*tuple, parse_index());
  }
  expect_operator("]");
  ExprPtr index = tuple->operands.size() == 1 ? std::move(tuple->operands[0]) : std::move(tuple);
  return make(ExprKind::kItem, line, std::move(object), std::move(index));
}

ExprPtr ExpressionParser::parse_index() {
  const int line = peek().line;
  ExprPtr start = at_operator(":") ? nullptr : parse_expression();
  if (!at_operator(":")) return start;
  ExprPtr slice = make(ExprKind::kSlice, line);
  adopt(*slice, std::move(start));
  for (int part = 1; part < 3; ++part) {
    const bool more = take_operator(":");
    adopt(*slice, more && !at_operator(":") && !at_operator("]") && !at_operator(",") ? parse_expression() : nullptr);
  }
  return slice;
}

void ExpressionParser::parse_arguments(Expr& call) {
  const int line = peek().line;
  expect_operator("(");
  bool first = true;
  while (!at_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (at_operator(")")) break;
    }
    first = false;
    const bool bad = (call.star_star != nullptr);
    ExprPtr e;
    if (take_operator("*")) {
      if (call.star || bad) fail(line, "invalid syntax for function call expression");
      call.star = parse_expression();
      call.depth = std::max(call.depth, call.star->depth + 1);
    } else if (take_operator("**")) {
      if (bad) fail(line, "invalid syntax for function call expression");
      call.star_star = parse_expression();
      call.depth = std::max(call.depth, call.star_star->depth + 1);
    } else if (peek().type == TokenType::kName && at_operator("=", 1)) {
      if (bad) fail(line, "invalid syntax for function call expression");
      std::string name = expect_name();
      advance();
      const bool repeated = std::any_of(call.keywords.begin(), call.keywords.end(), [&](const auto& k) { return k.first == name; });
      if (repeated) fail(line, fmt::format("keyword argument repeated: {}", name));
      ExprPtr value = parse_expression();
      call.depth = std::max(call.depth, value->depth + 1);
      call.keywords.emplace_back(std::move(name), std::move(value));
    } else {
      if (bad || call.star || !call.keywords.empty()) fail(line, "invalid syntax for function call expression");
      adopt(call, parse_expression());
    }
    if (call.depth > kMaxExpressionDepth) fail(line, fmt::format("an expression with more than {} operations one inside another", kMaxExpressionDepth));
  }
  expect_operator(")");
}

ExprPtr ExpressionParser::parse_filters(ExprPtr subject, bool start_inline) {
  while (at_operator("|") || start_inline) {
    if (!start_inline) advance();
    start_inline = false;
    ExprPtr e = make(ExprKind::kFilter, peek().line);
    adopt(*e, std::move(subject));
    e->name = expect_name();
    while (take_operator(".")) e->name += "." + expect_name();
    if (!soft_ && !find_filter(e->name)) unknown_.push_back({e->line, fmt::format("No filter named '{}'.", e->name)});
    if (at_operator("(")) parse_arguments(*e);
    subject = std::move(e);
  }
  return subject;
}

ExprPtr ExpressionParser::parse_test(ExprPtr subject) {
  const int line = peek().line;
  advance();
  const bool negated = take_name("not");
  ExprPtr e = make(ExprKind::kTest, line, std::move(subject));
  e->name = expect_name();
  while (take_operator(".")) e->name += "." + expect_name();
  if (!soft_ && !find_test(e->name)) unknown_.push_back({line, fmt::format("No test named '{}'.", e->name)});
  const TokenType next = peek().type;
  if (at_operator("(")) {
    parse_arguments(*e);
  } else if ((next == TokenType::kName && !at_name("else") && !at_name("or") && !at_name("and")) || next == TokenType::kString ||
             next == TokenType::kInteger || next == TokenType::kFloat || at_operator("[") || at_operator("{")) {
    if (at_name("is")) fail(peek().line, "You cannot chain multiple tests with is");
    adopt(*e, parse_postfix(parse_primary()));
  }
  return negated ? make(ExprKind::kNot, line, std::move(e)) : std::move(e);
}

Target ExpressionParser::parse_target(bool with_namespace, bool with_tuple) {
  const Nested nested(*this);
  const int line = peek().line;
  Target all{.line = line, .is_tuple = true};
  bool comma = false;
  while (true) {
    if (at_name("in") || peek().type == TokenType::kBlockEnd || at_operator(")") || at_operator("=")) break;
    Target one{.line = peek().line};
    if (take_operator("(")) {
      one = parse_target(false);
      expect_operator(")");
    } else {
      if (peek().type != TokenType::kName) fail(line, fmt::format("can't assign to '{}'", peek().text));
      one.name = expect_name();
      static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
      if (std::find(std::begin(kConstants), std::end(kConstants), one.name) != std::end(kConstants)) fail(line, "can't assign to 'const'");
      if (with_namespace && take_operator(".")) one.attribute = expect_name();
    }
    all.elements.push_back(std::move(one));
    if (!with_tuple || !at_operator(",")) break;
    comma = true;
    advance();
  }
  if (all.elements.empty()) fail(line, fmt::format("Expected an expression, got '{}'", peek().text));
  if (!comma) {
    Target only = std::move(all.elements[0]);
    return only;
  }
  return all;
}

}  // namespace ridge::jinja
