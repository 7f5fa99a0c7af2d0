// Looking into values as jinja2's immutable sandbox does: object.name prefers the attribute, object[key] the element; what is missing is undefined, and
// what would change a list or a dict is an undefined that names itself unsafe.
#include "text/jinja/runtime.h"

#include <algorithm>
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"

namespace ridge::jinja {
namespace {

bool changes_a_container(const Value& object, std::string_view name) {
  static constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::array<std::string_view, 8> kList = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  if (object.is_dict()) return std::find(kDict.begin(), kDict.end(), name) != kDict.end();
  return object.is_sequence() && object.sequence().flavor == Flavor::kList && std::find(kList.begin(), kList.end(), name) != kList.end();
}

std::string kind_of(const Value& object) {
  return object.is_none() ? "None" : object.is_undefined() ? "Undefined" : object.type_name() + " object";
}

Value missing(const Value& object, const Value& key) {
  if (key.is_text()) return Value::undefined(fmt::format("'{}' has no attribute {}", kind_of(object), repr_of_text(key.text())));
  return Value::undefined(fmt::format("{} has no element {}", kind_of(object), to_repr(key)));
}

[[noreturn]] void raise_undefined(const Value& value) { throw Raised{value.undefined_message()}; }

}  // namespace

Runtime::~Runtime() {
  for (const auto& ns : namespaces_) ns->members.clear();
}

std::shared_ptr<Namespace> Runtime::make_namespace() {
  spend(64);
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

Value Runtime::text(std::string bytes, bool markup) {
  check_text(bytes.size());
  spend(1 + static_cast<int64_t>(bytes.size() / 16));
  return Value(std::move(bytes), markup);
}

std::tm Runtime::now() const {
  if (now_) return *now_;
  const std::time_t t = std::time(nullptr);
  std::tm local{};
  localtime_r(&t, &local);
  return local;
}

std::optional<Value> Runtime::real_attribute(const Value& object, std::string_view name) {
  if (name.starts_with("__") && !object.object_as<Namespace>()) {
    return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, object.type_name()));
  }
  if (object.is_object()) return object.object()->attribute(*this, name);
  if (changes_a_container(object, name)) {
    return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, object.type_name()));
  }
  if (object.is_sequence() && object.sequence().flavor == Flavor::kGroup && (name == "grouper" || name == "list")) {
    return object.sequence().items[name == "list"];
  }
  const Method method = object.is_text() ? find_text_method(name) : find_container_method(object, name);
  if (!method) return std::nullopt;
  return Value(std::make_shared<Function>(name, method, object));
}

std::optional<Value> Runtime::subscript(const Value& object, const Value& key) {
  if (object.is_dict()) {
    if (key.is_dict() || (key.is_sequence() && !key.sequence().is_tuple())) return std::nullopt;
    spend(key.weight() / 16);
    const Value* found = object.dict().find(key);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  if (!key.is_integral()) return std::nullopt;
  int64_t i = key.integer();
  if (object.is_sequence() && object.sequence().is_indexable()) {
    const auto& items = object.sequence().items;
    if (i < 0) i += static_cast<int64_t>(items.size());
    if (i < 0 || i >= static_cast<int64_t>(items.size())) return std::nullopt;
    return items[i];
  }
  if (object.is_text()) {
    const std::string& text = object.text();
    spend(static_cast<int64_t>(text.size() / 64));
    const int64_t n = n_characters(text);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return std::nullopt;
    const size_t begin = byte_offset(text, i);
    return Value(text.substr(begin, byte_offset(std::string_view(text).substr(begin), 1)), object.is_markup());
  }
  return std::nullopt;
}

Value Runtime::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) raise_undefined(object);
  if (auto value = real_attribute(object, name)) {
    // A dict from JSON may have a key such as "__x__"; Python's dict has no such attribute, so the key is found.
    if (!(value->is_undefined() && object.is_dict() && name.starts_with("__") && object.dict().find(name))) return *value;
  }
  const Value key(name);
  if (auto value = subscript(object, key)) return *value;
  return missing(object, key);
}

Value Runtime::item(const Value& object, const Value& key) {
  if (object.is_undefined()) raise_undefined(object);
  if (auto value = subscript(object, key)) return *value;
  if (key.is_text()) {
    if (auto value = real_attribute(object, key.text())) return *value;
  }
  return missing(object, key);
}

std::vector<Value> Runtime::iterate(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_text()) {
    const std::string_view text = value.text();
    spend(static_cast<int64_t>(text.size()));
    for (size_t i = 0; i < text.size();) {
      size_t n = 1;
      while (i + n < text.size() && (text[i + n] & 0xC0) == 0x80) ++n;
      items.emplace_back(std::string(text.substr(i, n)));     // iterating Markup gives plain str
      i += n;
    }
  } else if (value.is_sequence()) {
    const Sequence& s = value.sequence();
    items.assign(s.items.begin() + static_cast<ptrdiff_t>(s.n_consumed), s.items.end());
    if (s.flavor == Flavor::kGenerator) s.n_consumed = s.items.size();
  } else if (value.is_dict()) {
    items.reserve(value.dict().items.size());
    for (const auto& item : value.dict().items) items.push_back(item.first);
  } else {
    raise("'{}' object is not iterable", value.type_name());
  }
  spend(static_cast<int64_t>(items.size()));
  return items;
}

int64_t Runtime::length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) {
    spend(static_cast<int64_t>(value.text().size() / 64));
    return n_characters(value.text());
  }
  if (value.is_sequence() && value.sequence().has_length()) return static_cast<int64_t>(value.sequence().items.size());
  if (value.is_dict()) return static_cast<int64_t>(value.dict().items.size());
  raise("object of type '{}' has no len()", value.type_name());
}

Value Runtime::call(const Value& callee, Args& args) {
  if (callee.is_undefined()) raise_undefined(callee);
  if (!callee.is_object()) raise("'{}' object is not callable", callee.type_name());
  return callee.object()->call(*this, args);
}

}  // namespace ridge::jinja
