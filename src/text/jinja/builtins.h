// What a template finds ready: filters, tests, methods of Python's types and global functions, each a plain function found by name.
#pragma once
#include <initializer_list>
#include <string_view>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace ridge::jinja {

using Filter = Value (*)(Runtime&, const Value& subject, Args&);
using Test = bool (*)(Runtime&, const Value& subject, Args&);
using Method = Value (*)(Runtime&, const Value& self, Args&);

Filter find_filter(std::string_view name);              // null when there is none
Filter find_text_filter(std::string_view name);         // the part of find_filter that works on text
Test find_test(std::string_view name);
bool takes_argument(std::string_view test);             // all others take none
Method find_text_method(std::string_view name);
Method find_container_method(const Value& self, std::string_view name);

// range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
std::vector<std::pair<std::string_view, Value>> global_functions();

class Function : public Object {
 public:
  Function(std::string_view name, Method method, Value self = {}) : name_(name), method_(method), self_(std::move(self)) {}
  std::string_view type_name() const override { return self_.is_none() ? "function" : "builtin_function_or_method"; }
  std::string repr() const override { return fmt::format("<function {}>", name_); }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, Args& args) override { return method_(runtime, self_, args); }

 private:
  std::string name_;
  Method method_;
  Value self_;
};

// Arguments matched to parameter names, as Python binds a call. Raises for too many, unknown or missing ones.
class Bound {
 public:
  Bound(std::string_view function, const Args& args, std::initializer_list<std::string_view> names, size_t n_required = 0);
  bool has(size_t i) const { return values_[i] != nullptr; }
  bool given(size_t i) const { return values_[i] && !values_[i]->is_none(); }       // and is not None
  const Value& operator[](size_t i) const;                                          // None when absent
  bool truth(size_t i, bool otherwise = false) const { return has(i) ? values_[i]->truth() : otherwise; }
  int64_t integer(size_t i, int64_t otherwise) const;
  std::string text(size_t i, std::string_view otherwise) const;                     // must be text
 private:
  std::vector<const Value*> values_;
};

int64_t as_integer(const Value& value);                 // raises "'str' object cannot be interpreted as an integer"

// operators.cpp
Value negate(const Value& value);
Value binary(Runtime& runtime, int op, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& item);
Value add(Runtime& runtime, const Value& a, const Value& b);
int64_t modulo(int64_t a, int64_t b);                   // Python's: the sign of b

// format.cpp: "%s" % x, "{}".format(x), and format(x, spec)
Value format_percent(Runtime& runtime, const Value& format, const Value& values);
std::string format_braces(Runtime& runtime, std::string_view format, const Args& args, bool escape);
std::string format_value(const Value& value, std::string_view spec);

std::string escape_html(std::string_view text);
std::string soft_escape(const Value& value);            // as it is when Markup, escaped otherwise

}  // namespace ridge::jinja
