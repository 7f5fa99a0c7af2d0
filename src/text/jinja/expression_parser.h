// Expressions, loosest first: if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary, then postfix (. [] ()) and filters and tests.
// Two of jinja2's quirks are kept: ** binds to the left and looser than unary minus, and filters bind tighter than any operator.
#pragma once
#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"

namespace ridge::jinja {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  struct Mentions {
    bool varargs = false, kwargs = false, caller = false;
  };
  Mentions mentions_;
  bool soft_ = false;                       // within an if: an unknown filter or test is an error only when it runs

  // Counts nesting for as long as it lives.
  struct Nested {
    explicit Nested(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) parser_.fail(parser_.peek().line, fmt::format("nested deeper than {} levels", kMaxNesting));
    }
    ~Nested() { --parser_.nesting_; }
    ExpressionParser& parser_;
  };

  ExprPtr parse_expression();
  ExprPtr parse_tuple(bool with_conditional = true, bool explicit_parentheses = false);
  ExprPtr parse_filters(ExprPtr subject, bool start_inline);
  Target parse_target(bool with_namespace, bool with_tuple = true);
  void finish_names();                      // reports the first unknown filter or test that was not soft

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  void advance() { at_ = std::min(at_ + 1, tokens_.size() - 1); }
  bool at_name(std::string_view name, size_t ahead = 0) const { return peek(ahead).type == TokenType::kName && peek(ahead).text == name; }
  bool at_operator(std::string_view op, size_t ahead = 0) const { return peek(ahead).type == TokenType::kOperator && peek(ahead).text == op; }
  bool take_name(std::string_view name);
  bool take_operator(std::string_view op);
  void expect(TokenType type, std::string_view what);
  void expect_operator(std::string_view op);
  std::string expect_name();
  [[noreturn]] void fail(int line, std::string message) const { throw SyntaxError{line, std::move(message)}; }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  struct UnknownName {
    int line;
    std::string message;
  };
  std::vector<UnknownName> unknown_;

  ExprPtr make(ExprKind kind, int line, ExprPtr a = nullptr, ExprPtr b = nullptr) const;
  void adopt(Expr& parent, ExprPtr child) const;
  bool at_tuple_end() const;
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_primary();
  ExprPtr parse_number();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr e);
  ExprPtr parse_filters_and_tests(ExprPtr e);
  ExprPtr parse_subscript(ExprPtr e);
  ExprPtr parse_index();
  ExprPtr parse_test(ExprPtr e);
  void parse_arguments(Expr& call);
};

}  // namespace ridge::jinja
