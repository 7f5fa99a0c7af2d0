// Truth, identity, equality, order and hashing of values as Python has them, and the way in from JSON.
#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/utf8.h"

namespace ridge::jinja {
namespace {

constexpr int kMaxValueDepth = 600;              // deeper than any JSON we parse (512)
constexpr int64_t kMaxWeight = 8 << 20;
constexpr size_t kIndexedFrom = 9;          // a dict of this many entries has a hash index

int checked_depth(int deepest) {
  if (deepest + 1 > kMaxValueDepth) raise("a value is nested deeper than {} levels", kMaxValueDepth);
  return deepest + 1;
}

int64_t checked_weight(int64_t weight) {
  if (weight > kMaxWeight) raise("a value has more than {} elements", kMaxWeight);
  return weight;
}

// -1, 0, 1, or nothing for NaN.
std::optional<int> compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  const double x = a.number(), y = b.number();
  if (std::isnan(x) || std::isnan(y)) return std::nullopt;
  if (x != y || a.is_float() == b.is_float()) return x < y ? -1 : x > y;
  // An integer beyond 2^53 may round to the float's value without being it.
  const double f = a.is_float() ? x : y;
  const int64_t i = a.is_float() ? b.integer() : a.integer();
  if (f >= 9223372036854775808.0) return a.is_float() ? 1 : -1;
  const int64_t g = static_cast<int64_t>(f);
  const int sign = i < g ? -1 : i > g;
  return a.is_float() ? -sign : sign;
}

bool same_family(const Sequence& a, const Sequence& b) {
  return a.flavor == b.flavor || (a.is_tuple() && b.is_tuple());
}

}  // namespace

std::string Object::repr() const { return fmt::format("<{} object>", type_name()); }
std::optional<Value> Object::attribute(Runtime&, std::string_view) { return std::nullopt; }
Value Object::call(Runtime&, Args&) { raise("'{}' object is not callable", type_name()); }

Value Value::undefined(std::string message) {
  Value v;
  v.data_ = std::make_shared<const Undefined>(Undefined{std::move(message)});
  return v;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_integral()) return integer() != 0;
  if (is_float()) return number() != 0;
  if (is_text()) return !text().empty();
  if (is_sequence()) return sequence().flavor == Flavor::kGenerator || !sequence().items.empty();
  if (is_dict()) return !dict().items.empty();
  return true;
}

bool Value::is(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_none()) return true;
  if (is_bool() || is_int()) return integer() == other.integer();
  if (is_float()) return number() == other.number();
  if (is_text()) return text() == other.text();               // Python interns most short strings; identity of text is not a promise there either
  if (is_sequence()) return &sequence() == &other.sequence();
  if (is_dict()) return &dict() == &other.dict();
  if (is_object()) return object() == other.object();
  return std::get<UndefinedRef>(data_) == std::get<UndefinedRef>(other.data_);
}

int Value::depth() const {
  if (is_sequence()) return sequence().depth;
  return is_dict() ? dict().depth : 0;
}

int64_t Value::weight() const {
  if (is_text()) return 1 + static_cast<int64_t>(text().size() / 32);
  if (is_sequence()) return sequence().weight;
  return is_dict() ? dict().weight : 1;
}

std::string Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_text()) return is_markup() ? "Markup" : "str";
  if (is_dict()) return "dict";
  if (is_object()) return std::string(object()->type_name());
  switch (sequence().flavor) {
    case Flavor::kList: return "list";
    case Flavor::kTuple: return "tuple";
    case Flavor::kGroup: return "_GroupTuple";
    case Flavor::kRange: return "range";
    case Flavor::kGenerator: return "generator";
    case Flavor::kKeys: return "dict_keys";
    case Flavor::kValues: return "dict_values";
    case Flavor::kItems: return "dict_items";
  }
  return "object";
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.is_text() && b.is_text()) return a.text() == b.text();
  if (a.is_sequence() && b.is_sequence()) {
    const Sequence &s = a.sequence(), &t = b.sequence();
    if (&s == &t) return true;
    if (!same_family(s, t) || s.flavor == Flavor::kGenerator || s.flavor == Flavor::kValues) return false;
    return s.items.size() == t.items.size() && std::equal(s.items.begin(), s.items.end(), t.items.begin(), equal);
  }
  if (a.is_dict() && b.is_dict()) {
    if (&a.dict() == &b.dict()) return true;
    if (a.dict().items.size() != b.dict().items.size()) return false;
    return std::all_of(a.dict().items.begin(), a.dict().items.end(), [&](const auto& item) {
      const Value* other = b.dict().find(item.first);
      return other && equal(item.second, *other);
    });
  }
  if (a.is_undefined() && b.is_undefined()) return true;
  return a.is(b);
}

bool less(const Value& a, const Value& b, std::string_view op) {
  if (a.is_undefined()) throw Raised{a.undefined_message()};
  if (b.is_undefined()) throw Raised{b.undefined_message()};
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.is_text() && b.is_text()) return a.text() < b.text();     // UTF-8 sorts as its code points do
  if (a.is_sequence() && b.is_sequence() && same_family(a.sequence(), b.sequence()) && a.sequence().flavor <= Flavor::kGroup) {
    const auto &s = a.sequence().items, &t = b.sequence().items;
    for (size_t i = 0; i < s.size() && i < t.size(); ++i) {
      if (!equal(s[i], t[i])) return less(s[i], t[i], op);
    }
    return s.size() < t.size();
  }
  raise("'{}' not supported between instances of '{}' and '{}'", op, a.type_name(), b.type_name());
}

size_t hash_of(const Value& value) {
  if (value.is_text()) return std::hash<std::string>{}(value.text());
  if (value.is_number()) return std::hash<double>{}(value.number());   // 1, 1.0 and True are one key
  if (value.is_sequence() && value.sequence().is_tuple()) {
    size_t h = 0x9e3779b97f4a7c15u;
    for (const Value& v : value.sequence().items) h = h * 1099511628211u + hash_of(v);
    return h;
  }
  if (value.is_dict() || value.is_sequence()) raise("unhashable type: '{}'", value.type_name());
  if (value.is_object()) return std::hash<const void*>{}(value.object().get());
  return value.is_none() ? 1 : 2;
}

size_t Dict::position(const Value& key) const {
  if (items.size() >= kIndexedFrom) {
    const auto it = index_.find(key);
    return it == index_.end() ? items.size() : it->second;
  }
  size_t i = 0;
  while (i < items.size() && !equal(items[i].first, key)) ++i;
  return i;
}

const Value* Dict::find(const Value& key) const {
  const size_t i = position(key);
  return i < items.size() ? &items[i].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (items.size() >= kIndexedFrom) return find(Value(key));
  for (const auto& [k, v] : items) {
    if (k.is_text() && k.text() == key) return &v;
  }
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  hash_of(key);                             // refuses what cannot be a key
  depth = std::max(depth, checked_depth(std::max(key.depth(), value.depth())));
  weight = checked_weight(weight + key.weight() + value.weight());
  const size_t i = position(key);
  if (i < items.size()) {
    items[i].second = std::move(value);
    return;
  }
  items.emplace_back(key, std::move(value));
  if (items.size() == kIndexedFrom) {
    for (size_t j = 0; j < items.size(); ++j) index_.emplace(items[j].first, j);
  } else if (items.size() > kIndexedFrom) {
    index_.emplace(key, i);
  }
}

Value make_sequence(Flavor flavor, std::vector<Value> items) {
  int deepest = 0;
  int64_t weight = 1;
  for (const Value& v : items) {
    deepest = std::max(deepest, v.depth());
    weight = checked_weight(weight + v.weight());
  }
  return std::make_shared<const Sequence>(Sequence{flavor, std::move(items), checked_depth(deepest), weight});
}

Value make_dict(std::shared_ptr<Dict> dict) { return Value::DictRef(std::move(dict)); }

Value from_json(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean: return json.get<bool>();
    case Json::value_t::number_integer: return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) raise("integer {} does not fit 64 bits with a sign", json.get<uint64_t>());
      return json.get<int64_t>();
    case Json::value_t::number_float: return json.get<double>();
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      return utf8::is_valid(text) ? Value(text) : Value(utf8::replace_invalid(text));
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(item));
      return make_list(std::move(items));
    }
    case Json::value_t::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, item] : json.items()) dict->set(utf8::replace_invalid(key), from_json(item));
      return make_dict(std::move(dict));
    }
    default: return Value();
  }
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [n, v] : members) {
    if (n == name) {
      v = std::move(value);
      return;
    }
  }
  members.emplace_back(name, std::move(value));
}

std::optional<Value> Namespace::attribute(Runtime&, std::string_view name) {
  for (const auto& [n, v] : members) {
    if (n == name) return v;
  }
  return std::nullopt;
}

}  // namespace ridge::jinja
