// The parsed template: statements and expressions as plain trees. Line numbers are where an error is reported.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace ridge::jinja {

enum class ExprKind {
  kConstant, kName, kList, kTuple, kDict, kAttribute, kItem, kSlice, kCall, kFilter, kTest, kNot, kNegate, kPlus, kBinary, kConcat, kCompare, kAnd, kOr, kConditional
};
enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// operands by kind: kList, kTuple, kConcat: the elements; kDict: key, value, key, value...; kAttribute, kNot, ...: one; kItem: object, index;
// kSlice: start, stop, step (each may be null); kCall, kFilter, kTest: the callee or subject (null in a filter block), then positional arguments;
// kCompare: first, then one per op; kConditional: condition, then, else (may be null).
struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;
  std::string name;                                     // kName, kAttribute, kFilter, kTest
  Value constant;
  BinaryOp binary{};
  std::vector<CompareOp> compares;
  std::vector<ExprPtr> operands;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star, star_star;                              // f(*star, **star_star)
};

// What can stand left of `=`: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  int line;
  std::string name, attribute;                          // attribute empty: a plain name
  std::vector<Target> elements;
  bool is_tuple = false;
};

struct Signature {
  std::vector<std::string> names;
  std::vector<ExprPtr> defaults;                        // of the last names
  bool takes_varargs = false, takes_kwargs = false, takes_caller = false;   // because the body mentions them
};

enum class StmtKind {
  kText, kOutput, kIf, kFor, kSet, kSetBlock, kMacro, kCallBlock, kFilterBlock, kWith, kBlock, kGeneration, kBreak, kContinue, kAutoescape
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Stmt {
  StmtKind kind;
  int line;
  std::string text;                                     // kText; name of a macro
  std::vector<Target> targets;                          // kFor, kSet, kSetBlock: one; kWith: one per value
  std::vector<ExprPtr> expressions;                     // kOutput, kSet: value; kIf: one per branch; kFor: iterable, filter (may be null); kWith: values
  std::vector<Body> bodies;                             // kIf: one per branch, then else; kFor: body, else; others: one
  Signature signature;
  bool recursive = false;
};

}  // namespace ridge::jinja
