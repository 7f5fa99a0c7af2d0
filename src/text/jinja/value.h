// The runtime value of a template: what Python's objects are to jinja2. Lists, tuples and dicts are shared and never change once made (the sandbox that
// Hugging Face uses forbids every method that would change one), so sharing them is Python's reference semantics; only a namespace can be assigned to.
// Containers know their nesting depth and their weight (elements at all levels, shared ones counted each time), so that no template can build a value
// whose printing, comparison or destruction would overflow the stack or take for ever.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"

namespace ridge::jinja {

// What a template did wrong while running; the interpreter adds the template's name and the line and throws Error.
struct Raised {
  std::string message;
};

class Value;
struct Sequence;
struct Dict;
class Runtime;

struct None {};
struct Undefined {
  std::string message;              // what using it raises
};
struct Text {
  std::string bytes;                // UTF-8, always well-formed
  bool markup = false;              // Markup of markupsafe: `+` and `%` escape the other operand
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

// What is neither data nor text: namespaces, macros, functions, bound methods, loops.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::string repr() const;
  virtual std::optional<Value> attribute(Runtime&, std::string_view name);
  virtual bool is_callable() const { return false; }
  virtual Value call(Runtime& runtime, Args& args);
};

class Value {
 public:
  using TextRef = std::shared_ptr<const Text>;
  using SequenceRef = std::shared_ptr<const Sequence>;
  using DictRef = std::shared_ptr<const Dict>;
  using ObjectRef = std::shared_ptr<Object>;
  using UndefinedRef = std::shared_ptr<const Undefined>;

  Value() : data_(None{}) {}
  Value(bool b) : data_(b) {}
  Value(int i) : data_(int64_t{i}) {}
  Value(int64_t i) : data_(i) {}
  Value(double d) : data_(d) {}
  Value(std::string text, bool markup = false) : data_(std::make_shared<const Text>(Text{std::move(text), markup})) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(SequenceRef sequence) : data_(std::move(sequence)) {}
  Value(DictRef dict) : data_(std::move(dict)) {}
  Value(ObjectRef object) : data_(std::move(object)) {}
  template <class T>
    requires std::is_base_of_v<Object, T>
  Value(std::shared_ptr<T> object) : data_(ObjectRef(std::move(object))) {}
  static Value undefined(std::string message);

  bool is_undefined() const { return std::holds_alternative<UndefinedRef>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_integral() const { return is_bool() || is_int(); }
  bool is_number() const { return is_integral() || is_float(); }
  bool is_text() const { return std::holds_alternative<TextRef>(data_); }
  bool is_markup() const { return is_text() && std::get<TextRef>(data_)->markup; }
  bool is_sequence() const { return std::holds_alternative<SequenceRef>(data_); }
  bool is_dict() const { return std::holds_alternative<DictRef>(data_); }
  bool is_object() const { return std::holds_alternative<ObjectRef>(data_); }

  // The caller has checked the kind.
  const std::string& undefined_message() const { return std::get<UndefinedRef>(data_)->message; }
  int64_t integer() const { return is_bool() ? int64_t{std::get<bool>(data_)} : std::get<int64_t>(data_); }
  double number() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }
  const std::string& text() const { return std::get<TextRef>(data_)->bytes; }
  const Sequence& sequence() const { return *std::get<SequenceRef>(data_); }
  const Dict& dict() const { return *std::get<DictRef>(data_); }
  const ObjectRef& object() const { return std::get<ObjectRef>(data_); }
  template <class T>
  std::shared_ptr<T> object_as() const { return is_object() ? std::dynamic_pointer_cast<T>(object()) : nullptr; }

  bool truth() const;
  bool is(const Value& other) const;        // Python's `is`
  int depth() const;                        // 0 for scalars
  int64_t weight() const;                   // how much walking over it costs: elements at all levels, text by its size
  std::string type_name() const;            // "str", "dict", "NoneType"

 private:
  std::variant<None, bool, int64_t, double, TextRef, SequenceRef, DictRef, ObjectRef, UndefinedRef> data_;
};

enum class Flavor : uint8_t { kList, kTuple, kGroup, kRange, kGenerator, kKeys, kValues, kItems };

// Everything that Python iterates in order. A generator is computed at once but keeps its manners: always true, no length, no index, consumed once.
struct Sequence {
  Flavor flavor;
  std::vector<Value> items;
  int depth;
  int64_t weight;
  mutable size_t n_consumed = 0;            // generators only
  bool is_tuple() const { return flavor == Flavor::kTuple || flavor == Flavor::kGroup; }
  bool is_indexable() const { return flavor <= Flavor::kRange; }
  bool has_length() const { return flavor != Flavor::kGenerator; }
};

size_t hash_of(const Value& value);         // raises for what Python cannot hash
bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b, std::string_view op = "<");

// Insertion ordered. Small dicts are searched, larger ones have an index.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
  int64_t weight = 1;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);  // only while it is being made

 private:
  struct Hash {
    size_t operator()(const Value& v) const { return hash_of(v); }
  };
  struct Equal {
    bool operator()(const Value& a, const Value& b) const { return equal(a, b); }
  };
  std::unordered_map<Value, size_t, Hash, Equal> index_;
  size_t position(const Value& key) const;
};

Value make_sequence(Flavor flavor, std::vector<Value> items);
inline Value make_list(std::vector<Value> items) { return make_sequence(Flavor::kList, std::move(items)); }
inline Value make_tuple(std::vector<Value> items) { return make_sequence(Flavor::kTuple, std::move(items)); }
Value make_dict(std::shared_ptr<Dict> dict);
Value from_json(const Json& json);

// `{% set ns.x = ... %}` is the one assignment into a value.
class Namespace : public Object {
 public:
  std::vector<std::pair<std::string, Value>> members;
  void set(std::string_view name, Value value);
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(Runtime&, std::string_view name) override;
};

// Python's str() and repr(), json.dumps(), and the shortest float that reads back as the same value.
std::string to_text(const Value& value);
std::string to_repr(const Value& value);
std::string repr_of_text(std::string_view text, bool ascii = false);
std::string repr_of_float(double value);
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style);

template <class... A>
[[noreturn]] void raise(fmt::format_string<A...> message, A&&... args) {
  throw Raised{fmt::format(message, std::forward<A>(args)...)};
}

}  // namespace ridge::jinja
