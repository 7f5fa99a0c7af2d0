// Statements: scopes, loops and macros.
#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/builtins.h"

namespace ridge::jinja {

// The `loop` of a for. The iterable is walked one ahead at most unless its length is asked for, so a filter (`for x in y if ...`) sees what the body did.
class Loop : public Object {
 public:
  Loop(std::vector<Value> items, std::function<bool(const Value&)> accepts, int depth0, std::function<Value(const Value&)> recurse)
      : items_(std::move(items)), accepts_(std::move(accepts)), depth0_(depth0), recurse_(std::move(recurse)) {}

  bool advance() {
    if (!peek()) return false;
    before_ = std::exchange(current_, *after_);
    after_.reset();
    ++index0_;
    return true;
  }
  const Value& current() const { return *current_; }

  std::string_view type_name() const override { return "LoopContext"; }
  std::string repr() const override { return "<LoopContext>"; }
  bool is_callable() const override { return true; }

  std::optional<Value> attribute(Runtime&, std::string_view name) override {
    if (name == "index") return index0_ + 1;
    if (name == "index0") return index0_;
    if (name == "first") return index0_ == 0;
    if (name == "last") return !peek();
    if (name == "length") return length();
    if (name == "revindex") return length() - index0_;
    if (name == "revindex0") return length() - index0_ - 1;
    if (name == "depth") return depth0_ + 1;
    if (name == "depth0") return depth0_;
    if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
    if (name == "nextitem") return peek() ? *after_ : Value::undefined("there is no next item");
    if (name == "cycle") return Value(std::make_shared<Function>("cycle", cycle, Value(index0_)));
    if (name == "changed") return Value(std::make_shared<Changed>(last_changed_));
    return std::nullopt;
  }

  Value call(Runtime&, Args& args) override {
    const Bound b("loop", args, {"iterable"}, 1);
    if (!recurse_) raise("The loop must have the 'recursive' marker to be called recursively.");
    return recurse_(b[0]);
  }

 private:
  std::vector<Value> items_;
  size_t next_ = 0;
  std::function<bool(const Value&)> accepts_;
  int64_t index0_ = -1;
  int64_t depth0_;
  std::function<Value(const Value&)> recurse_;
  std::optional<Value> before_, current_, after_;
  std::shared_ptr<std::optional<std::vector<Value>>> last_changed_ = std::make_shared<std::optional<std::vector<Value>>>();

  bool peek() {
    while (!after_ && next_ < items_.size()) {
      const Value& item = items_[next_++];
      if (!accepts_ || accepts_(item)) after_ = item;
    }
    return after_.has_value();
  }

  int64_t length() {
    if (accepts_) {
      std::vector<Value> rest;
      for (; next_ < items_.size(); ++next_) {
        if (accepts_(items_[next_])) rest.push_back(items_[next_]);
      }
      accepts_ = nullptr;
      next_ = static_cast<size_t>(index0_) + 1 + after_.has_value();
      rest.insert(rest.begin(), next_, Value());        // keeps the count of what was seen; those places are not read again
      items_ = std::move(rest);
    }
    return static_cast<int64_t>(items_.size());
  }

  static Value cycle(Runtime&, const Value& index0, Args& args) {
    if (args.positional.empty()) raise("no items for cycling given");
    return args.positional[index0.integer() % args.positional.size()];
  }

  class Changed : public Object {
   public:
    explicit Changed(std::shared_ptr<std::optional<std::vector<Value>>> last) : last_(std::move(last)) {}
    std::string_view type_name() const override { return "method"; }
    bool is_callable() const override { return true; }
    Value call(Runtime&, Args& args) override {
      const bool same = *last_ && (*last_)->size() == args.positional.size() && std::equal((*last_)->begin(), (*last_)->end(), args.positional.begin(), equal);
      if (!same) *last_ = args.positional;
      return !same;
    }

   private:
    std::shared_ptr<std::optional<std::vector<Value>>> last_;
  };
};

namespace {

class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const Stmt& definition, ScopeRef scope) : interpreter_(interpreter), definition_(definition), scope_(std::move(scope)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string repr() const override { return fmt::format("<Macro {}>", repr_of_text(definition_.text)); }
  bool is_callable() const override { return true; }
  Value call(Runtime&, Args& args) override { return interpreter_.call_macro(definition_, scope_, args); }
  std::optional<Value> attribute(Runtime&, std::string_view name) override {
    const Signature& signature = definition_.signature;
    if (name == "name") return definition_.kind == StmtKind::kMacro ? Value(definition_.text) : Value();
    if (name == "caller") return signature.takes_caller;
    if (name == "catch_kwargs") return signature.takes_kwargs;
    if (name == "catch_varargs") return signature.takes_varargs;
    if (name == "arguments") return make_tuple(std::vector<Value>(signature.names.begin(), signature.names.end()));
    return std::nullopt;
  }

 private:
  Interpreter& interpreter_;
  const Stmt& definition_;
  ScopeRef scope_;
};

}  // namespace

Interpreter::Interpreter(const Json& variables, std::optional<std::tm> now) : runtime_(now), root_(std::make_shared<Scope>()) {
  for (auto& [name, function] : global_functions()) root_->names.insert_or_assign(name, std::move(function));
  for (const auto& [name, value] : variables.items()) root_->names.insert_or_assign(name, from_json(value));
  scope_ = root_;
}

Interpreter::~Interpreter() {
  for (const ScopeRef& scope : captured_) scope->names.clear();
}

std::string Interpreter::render(const Body& body) {
  std::string out;
  out_ = &out;
  run(body);
  return out;
}

void Interpreter::keep(const ScopeRef& scope) {
  if (!captured_.empty() && captured_.back() == scope) return;
  runtime_.spend(64);
  captured_.push_back(scope);
}

void Interpreter::write(std::string_view text) {
  runtime_.check_text(out_->size() + text.size());
  runtime_.spend(static_cast<int64_t>(text.size() / 16));
  *out_ += text;
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const Stmt& s : body) {
    const Flow flow = run_one(s);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_in(const Body& body, ScopeRef scope) {
  std::swap(scope_, scope);
  const Flow flow = run(body);
  std::swap(scope_, scope);
  return flow;
}

std::string Interpreter::capture(const Body& body, ScopeRef scope) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  run_in(body, std::move(scope));
  out_ = outer;
  return text;
}

Interpreter::Flow Interpreter::run_one(const Stmt& s) {
  const Deeper deeper(*this);
  line_ = s.line;
  switch (s.kind) {
    case StmtKind::kText: write(s.text); break;
    case StmtKind::kOutput:
      for (const ExprPtr& e : s.expressions) {
        const Value value = evaluate(*e);
        if (value.is_text()) {
          write(value.text());
        } else {
          runtime_.spend(value.weight());
          write(to_text(value));
        }
      }
      break;
    case StmtKind::kIf: return run_if(s);
    case StmtKind::kFor: run_for(s); break;
    case StmtKind::kSet: assign(s.targets[0], evaluate(*s.expressions[0]), *scope_); break;
    case StmtKind::kSetBlock: {
      Value value = runtime_.text(capture(s.bodies[0], inner()));
      if (s.expressions[0]) value = evaluate_filter(*s.expressions[0], &value);
      assign(s.targets[0], value, *scope_);
      break;
    }
    case StmtKind::kMacro: scope_->names.insert_or_assign(s.text, make_macro(s)); break;
    case StmtKind::kCallBlock: return run_call_block(s);
    case StmtKind::kFilterBlock: {
      const Value value = runtime_.text(capture(s.bodies[0], inner()));
      write(to_text(evaluate_filter(*s.expressions[0], &value)));
      break;
    }
    case StmtKind::kWith: {
      const ScopeRef scope = inner();
      for (size_t i = 0; i < s.targets.size(); ++i) assign(s.targets[i], evaluate(*s.expressions[i]), *scope);
      return run_in(s.bodies[0], scope);
    }
    case StmtKind::kBlock: return run_in(s.bodies[0], std::make_shared<Scope>(Scope{root_, {}}));
    case StmtKind::kGeneration: return run_in(s.bodies[0], inner());
    case StmtKind::kAutoescape:
      if (evaluate(*s.expressions[0]).truth()) raise("autoescape true is not supported: prompts are not HTML");
      return run_in(s.bodies[0], inner());
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_if(const Stmt& s) {
  for (size_t i = 0; i < s.expressions.size(); ++i) {
    if (evaluate(*s.expressions[i]).truth()) return run(s.bodies[i]);
  }
  return s.bodies.size() > s.expressions.size() ? run(s.bodies.back()) : Flow::kNormal;
}

void Interpreter::run_for(const Stmt& s) {
  const Value iterable = evaluate(*s.expressions[0]);
  line_ = s.line;
  const ScopeRef scope = scope_;
  if (s.recursive) return write(render_loop(s, scope, iterable, 0));
  render_loop(s, scope, iterable, -1);
}

// depth -1: not recursive, the body writes straight to the output.
std::string Interpreter::render_loop(const Stmt& s, const ScopeRef& scope, const Value& iterable, int depth) {
  std::string text;
  std::string* const outer_out = depth >= 0 ? std::exchange(out_, &text) : out_;
  const ScopeRef outer_scope = std::exchange(scope_, scope);
  std::function<bool(const Value&)> accepts;
  if (s.expressions[1]) {
    accepts = [this, &s, scope](const Value& item) {
      ScopeRef own = std::make_shared<Scope>(Scope{scope, {}});
      assign(s.targets[0], item, *own);
      std::swap(scope_, own);
      const bool accepted = evaluate(*s.expressions[1]).truth();
      std::swap(scope_, own);
      return accepted;
    };
  }
  std::function<Value(const Value&)> recurse;
  if (depth >= 0) {
    recurse = [this, &s, scope, depth](const Value& inner_iterable) {
      const Deeper deeper(*this);
      return runtime_.text(render_loop(s, scope, inner_iterable, depth + 1));
    };
  }
  const auto loop = std::make_shared<Loop>(runtime_.iterate(iterable), std::move(accepts), std::max(depth, 0), std::move(recurse));
  // As jinja2 compiles it, the else branch runs unless a body came to its end: leaving the only turn by break runs it too.
  bool completed = false;
  while (loop->advance()) {
    runtime_.spend(8);                      // a scope is made
    const ScopeRef own = std::make_shared<Scope>(Scope{scope, {}});
    own->names.emplace("loop", loop);
    line_ = s.line;
    assign(s.targets[0], loop->current(), *own);
    const Flow flow = run_in(s.bodies[0], own);
    if (flow == Flow::kBreak) break;
    completed |= flow == Flow::kNormal;
  }
  if (!completed && s.bodies.size() > 1) run_in(s.bodies[1], std::make_shared<Scope>(Scope{scope, {}}));
  scope_ = outer_scope;
  out_ = outer_out;
  return text;
}

Interpreter::Flow Interpreter::run_call_block(const Stmt& s) {
  const Value caller = make_macro(s);
  write(to_text(evaluate_call(*s.expressions[0], &caller)));
  return Flow::kNormal;
}

Value Interpreter::make_macro(const Stmt& s) {
  keep(scope_);
  return std::make_shared<Macro>(*this, s, scope_);
}

Value Interpreter::call_macro(const Stmt& macro, const ScopeRef& defined_in, Args& args) {
  const Deeper deeper(*this);
  const Signature& signature = macro.signature;
  const size_t n_names = signature.names.size(), n_positional = args.positional.size();
  const int line = line_;
  const ScopeRef own = std::make_shared<Scope>(Scope{defined_in, {}});
  const auto pop_keyword = [&](std::string_view name) -> std::optional<Value> {
    for (auto it = args.keyword.begin(); it != args.keyword.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      args.keyword.erase(it);
      return value;
    }
    return std::nullopt;
  };
  ScopeRef outer = std::exchange(scope_, own);
  bool found_caller = false;
  // Given values first: a default may name any parameter.
  std::vector<size_t> missing;
  for (size_t i = 0; i < n_names; ++i) {
    const std::string& name = signature.names[i];
    found_caller |= name == "caller";
    if (i < n_positional) {
      own->names.insert_or_assign(name, args.positional[i]);
    } else if (auto value = pop_keyword(name)) {
      own->names.insert_or_assign(name, *value);
    } else {
      missing.push_back(i);
    }
  }
  const std::string macro_name = macro.kind == StmtKind::kMacro ? repr_of_text(macro.text) : "None";
  if (signature.takes_caller && !found_caller) own->names.insert_or_assign("caller", pop_keyword("caller").value_or(Value::undefined("No caller defined")));
  if (signature.takes_kwargs) {
    auto rest = std::make_shared<Dict>();
    for (const auto& [name, value] : args.keyword) rest->set(name, value);
    own->names.insert_or_assign("kwargs", make_dict(std::move(rest)));
  } else if (!args.keyword.empty()) {
    if (args.keyword[0].first == "caller") raise("macro {} was invoked with two values for the special caller argument. This is most likely a bug.", macro_name);
    raise("macro {} takes no keyword argument {}", macro_name, repr_of_text(args.keyword[0].first));
  }
  if (signature.takes_varargs) {
    const size_t n = std::min(n_names, n_positional);
    own->names.insert_or_assign("varargs", make_tuple(std::vector<Value>(args.positional.begin() + static_cast<ptrdiff_t>(n), args.positional.end())));
  } else if (n_positional > n_names) {
    raise("macro {} takes not more than {} argument(s)", macro_name, n_names);
  }
  const size_t first_default = n_names - signature.defaults.size();
  for (const size_t i : missing) {
    own->names.insert_or_assign(signature.names[i], i >= first_default ? evaluate(*signature.defaults[i - first_default])
                                                                       : Value::undefined(fmt::format("parameter {} was not provided", repr_of_text(signature.names[i]))));
  }
  Value text = runtime_.text(capture(macro.bodies[0], own));
  scope_ = std::move(outer);
  line_ = line;
  return text;
}

void Interpreter::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.is_tuple) {
    const std::vector<Value> items = runtime_.iterate(value);
    if (items.size() != target.elements.size()) {
      if (items.size() > target.elements.size()) raise("too many values to unpack (expected {})", target.elements.size());
      raise("not enough values to unpack (expected {}, got {})", target.elements.size(), items.size());
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.elements[i], items[i], scope);
  } else if (target.attribute.empty()) {
    scope.names.insert_or_assign(target.name, value);
  } else {
    Value found;
    for (const Scope* s = scope_.get(); s; s = s->parent.get()) {
      const auto it = s->names.find(target.name);
      if (it == s->names.end()) continue;
      found = it->second;
      break;
    }
    const auto ns = found.object_as<Namespace>();
    if (!ns) raise("cannot assign attribute on non-namespace object");
    runtime_.spend(static_cast<int64_t>(ns->members.size() / 8));
    ns->set(target.attribute, value);
  }
}

}  // namespace ridge::jinja
