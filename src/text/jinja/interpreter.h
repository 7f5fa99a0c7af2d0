// Runs a parsed template. Scopes are as jinja2's: the body of a loop (each turn anew), a macro, a with, a block set and a filter block have one of
// their own, an if has none; a name is looked up outwards at the time of use, and a set writes to the innermost scope.
#pragma once
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace ridge::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::unordered_map<std::string_view, Value> names;    // views into the tree, which outlives the rendering
};
using ScopeRef = std::shared_ptr<Scope>;

class Loop;

class Interpreter {
 public:
  Interpreter(const Json& variables, std::optional<std::tm> now);
  ~Interpreter();
  std::string render(const Body& body);
  int line() const { return line_; }

  Value call_macro(const Stmt& macro, const ScopeRef& scope, Args& args);
  std::string render_loop(const Stmt& loop, const ScopeRef& scope, const Value& iterable, int depth);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  // Counts evaluations under way for as long as it lives.
  struct Deeper {
    explicit Deeper(Interpreter& interpreter) : interpreter_(interpreter) {
      interpreter_.runtime_.spend(1);
      if (++interpreter_.depth_ > kMaxCallDepth) {
        --interpreter_.depth_;
        raise("recursion deeper than {} evaluations", kMaxCallDepth);
      }
    }
    ~Deeper() { --interpreter_.depth_; }
    Interpreter& interpreter_;
  };

  Runtime runtime_;
  ScopeRef scope_;
  ScopeRef root_;
  std::string* out_ = nullptr;
  int line_ = 0;
  int depth_ = 0;
  std::vector<ScopeRef> captured_;          // held by macros and loops; emptied at the end because they hold those in turn

  Flow run(const Body& body);
  Flow run_one(const Stmt& s);
  Flow run_if(const Stmt& s);
  void run_for(const Stmt& s);
  Flow run_call_block(const Stmt& s);
  std::string capture(const Body& body, ScopeRef scope);        // what the body writes
  Flow run_in(const Body& body, ScopeRef scope);
  ScopeRef inner() const { return std::make_shared<Scope>(Scope{scope_, {}}); }
  void keep(const ScopeRef& scope);
  void write(std::string_view text);
  void assign(const Target& target, const Value& value, Scope& scope);
  Value make_macro(const Stmt& s);

  Value evaluate(const Expr& e);
  Value evaluate_name(const Expr& e);
  Value evaluate_container(const Expr& e);
  Value evaluate_item(const Expr& e);
  Value evaluate_slice(const Value& object, const Expr& slice);
  Value evaluate_call(const Expr& e, const Value* caller = nullptr);
  Value evaluate_filter(const Expr& e, const Value* subject = nullptr);
  Value evaluate_test(const Expr& e);
  Value evaluate_concat(const Expr& e);
  Value evaluate_compare(const Expr& e);
  Value evaluate_binary(const Expr& e);
  Value evaluate_conditional(const Expr& e);
  Args evaluate_arguments(const Expr& e);
  bool compare(CompareOp op, const Value& a, const Value& b);
};

}  // namespace ridge::jinja
