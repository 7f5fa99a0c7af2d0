// Statements. The end of a block is found by name (`endfor`, `else`), as jinja2 does, so an error can say which tag it was looking for.
#include "text/jinja/parser.h"

#include "text/jinja/expression_parser.h"

namespace ridge::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(tokenize(source)) {}

  Body run() {
    Body body = parse_body({}, "");
    finish_names();
    return body;
  }

 private:
  int n_loops_ = 0;                         // loops around, within the same macro

  bool at_name_of(Names names) const {
    for (const std::string_view name : names) {
      if (at_name(name)) return true;
    }
    return false;
  }

  // Up to a block tag named in `ends` (the stream is then at that name), or the end of the template when there are none.
  Body parse_body(Names ends, std::string_view of) {
    const Nested nested(*this);
    Body body;
    while (peek().type != TokenType::kEnd) {
      const Token& token = peek();
      if (token.type == TokenType::kData) {
        body.push_back({.kind = StmtKind::kText, .line = token.line, .text = token.text});
        advance();
      } else if (token.type == TokenType::kVariableBegin) {
        advance();
        Stmt output{.kind = StmtKind::kOutput, .line = token.line};
        output.expressions.push_back(parse_tuple());
        body.push_back(std::move(output));
        expect(TokenType::kVariableEnd, "end of print statement");
      } else if (token.type == TokenType::kBlockBegin) {
        advance();
        if (at_name_of(ends)) return body;
        body.push_back(parse_statement());
        expect(TokenType::kBlockEnd, "end of statement block");
      } else {
        fail(token.line, "unexpected '" + token.text + "'");
      }
    }
    if (ends.size() > 0) {
      std::string wanted;
      for (const std::string_view name : ends) wanted += (wanted.empty() ? "'" : " or '") + std::string(name) + "'";
      fail(peek().line, fmt::format("Unexpected end of template: '{}' needs {}", of, wanted));
    }
    return body;
  }

  // The `%}` of the opening tag, then the body; a colon before it is allowed as in Python.
  Body parse_block(Names ends, std::string_view of) {
    take_operator(":");
    expect(TokenType::kBlockEnd, "end of statement block");
    return parse_body(ends, of);
  }

  // A body in a frame of its own, where an unknown filter is an error even if it would not run.
  Body parse_framed(Names ends, std::string_view of) {
    const bool soft = std::exchange(soft_, false);
    Body body = parse_block(ends, of);
    soft_ = soft;
    return body;
  }

  Body parse_closed(std::string_view end, std::string_view of) {
    Body body = parse_framed({end}, of);
    advance();
    return body;
  }

  Stmt parse_statement() {
    const Token token = peek();
    if (token.type != TokenType::kName) fail(token.line, "tag name expected");
    const std::string& name = token.text;
    advance();
    Stmt s{.kind = StmtKind::kText, .line = token.line};
    if (name == "if") return parse_if(std::move(s));
    if (name == "for") return parse_for(std::move(s));
    if (name == "set") return parse_set(std::move(s));
    if (name == "macro") return parse_macro(std::move(s));
    if (name == "call") return parse_call_block(std::move(s));
    if (name == "with") return parse_with(std::move(s));
    if (name == "print") {
      s.kind = StmtKind::kOutput;
      while (peek().type != TokenType::kBlockEnd) {
        if (!s.expressions.empty()) expect_operator(",");
        s.expressions.push_back(parse_expression());
      }
    } else if (name == "filter") {
      s.kind = StmtKind::kFilterBlock;
      s.expressions.push_back(parse_filters(nullptr, true));
      s.bodies.push_back(parse_closed("endfilter", name));
    } else if (name == "generation") {
      s.kind = StmtKind::kGeneration;
      const int loops = std::exchange(n_loops_, 0);
      s.bodies.push_back(parse_closed("endgeneration", name));
      n_loops_ = loops;
    } else if (name == "autoescape") {
      s.kind = StmtKind::kAutoescape;
      s.expressions.push_back(parse_expression());
      s.bodies.push_back(parse_closed("endautoescape", name));
    } else if (name == "block") {
      s.kind = StmtKind::kBlock;
      s.text = expect_name();
      take_name("scoped");
      const int loops = std::exchange(n_loops_, 0);
      s.bodies.push_back(parse_closed("endblock", name));
      n_loops_ = loops;
      take_name(s.text);
    } else if (name == "break" || name == "continue") {
      s.kind = name == "break" ? StmtKind::kBreak : StmtKind::kContinue;
      if (n_loops_ == 0) fail(token.line, fmt::format("'{}' outside loop", name));
    } else if (name == "include" || name == "import" || name == "from" || name == "extends") {
      fail(token.line, fmt::format("'{}' is not supported: a chat template is one file", name));
    } else {
      fail(token.line, fmt::format("Encountered unknown tag '{}'.", name));
    }
    return s;
  }

  Stmt parse_if(Stmt s) {
    s.kind = StmtKind::kIf;
    const bool soft = std::exchange(soft_, true);
    while (true) {
      s.expressions.push_back(parse_tuple(false));
      s.bodies.push_back(parse_block({"elif", "else", "endif"}, "if"));
      const std::string tag = expect_name();
      if (tag == "elif") continue;
      if (tag == "else") {
        s.bodies.push_back(parse_block({"endif"}, "if"));
        advance();
      }
      break;
    }
    soft_ = soft;
    return s;
  }

  Stmt parse_for(Stmt s) {
    s.kind = StmtKind::kFor;
    s.targets.push_back(parse_target(false));
    if (!take_name("in")) fail(peek().line, fmt::format("expected 'in', got '{}'", peek().text));
    s.expressions.push_back(parse_tuple(false));
    s.expressions.push_back(take_name("if") ? parse_expression() : nullptr);
    s.recursive = take_name("recursive");
    ++n_loops_;
    s.bodies.push_back(parse_framed({"endfor", "else"}, "for"));
    --n_loops_;
    if (expect_name() == "else") s.bodies.push_back(parse_closed("endfor", "for"));
    return s;
  }

  Stmt parse_set(Stmt s) {
    s.targets.push_back(parse_target(true));
    if (take_operator("=")) {
      s.kind = StmtKind::kSet;
      s.expressions.push_back(parse_tuple());
      return s;
    }
    s.kind = StmtKind::kSetBlock;
    s.expressions.push_back(parse_filters(nullptr, false));
    s.bodies.push_back(parse_closed("endset", "set"));
    return s;
  }

  Signature parse_signature() {
    Signature signature;
    expect_operator("(");
    while (!at_operator(")")) {
      if (!signature.names.empty()) expect_operator(",");
      signature.names.push_back(expect_name());
      if (take_operator("=")) {
        signature.defaults.push_back(parse_expression());
      } else if (!signature.defaults.empty()) {
        fail(peek().line, "non-default argument follows default argument");
      }
    }
    expect_operator(")");
    return signature;
  }

  // A macro takes varargs, kwargs or caller when its body mentions them.
  void parse_macro_body(Stmt& s, std::string_view end, std::string_view of) {
    const Mentions outer = std::exchange(mentions_, {});
    const int loops = std::exchange(n_loops_, 0);
    s.bodies.push_back(parse_closed(end, of));
    n_loops_ = loops;
    s.signature.takes_varargs = mentions_.varargs;
    s.signature.takes_kwargs = mentions_.kwargs;
    s.signature.takes_caller = mentions_.caller;
    mentions_ = {outer.varargs || mentions_.varargs, outer.kwargs || mentions_.kwargs, outer.caller || mentions_.caller};
  }

  Stmt parse_macro(Stmt s) {
    s.kind = StmtKind::kMacro;
    s.text = expect_name();
    s.signature = parse_signature();
    parse_macro_body(s, "endmacro", "macro");
    return s;
  }

  Stmt parse_call_block(Stmt s) {
    s.kind = StmtKind::kCallBlock;
    s.text = "caller";
    if (at_operator("(")) s.signature = parse_signature();
    s.expressions.push_back(parse_expression());
    if (s.expressions[0]->kind != ExprKind::kCall) fail(s.line, "expected call");
    parse_macro_body(s, "endcall", "call");
    return s;
  }

  Stmt parse_with(Stmt s) {
    s.kind = StmtKind::kWith;
    while (peek().type != TokenType::kBlockEnd) {
      if (!s.targets.empty()) expect_operator(",");
      s.targets.push_back(parse_target(false, false));
      expect_operator("=");
      s.expressions.push_back(parse_expression());
    }
    s.bodies.push_back(parse_closed("endwith", "with"));
    return s;
  }
};

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace ridge::jinja
