// Whether a value fits a schema.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "text/regex.h"
#include "text/schema_types.h"

namespace ridge {

uint8_t type_named(const std::string& name, const std::string& what) {
  static const std::map<std::string, uint8_t> kTypes = {{"null", kNull}, {"boolean", kBoolean}, {"integer", kInteger}, {"number", kNumber}, {"string", kString}, {"array", kArray}, {"object", kObject}};
  const auto found = kTypes.find(name);
  if (found == kTypes.end()) fail("{}: type '{}' does not exist; use null, boolean, integer, number, string, array or object", what, name);
  return found->second;
}

uint8_t type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return kNull;
    case Json::value_t::boolean: return kBoolean;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return kInteger;
    case Json::value_t::number_float: return value.get<double>() == std::floor(value.get<double>()) ? kInteger : kFraction;
    case Json::value_t::string: return kString;
    case Json::value_t::array: return kArray;
    default: return kObject;
  }
}

int64_t count_of(const Json& part, const char* key, int64_t otherwise, const std::string& what) {
  if (!part.contains(key)) return otherwise;
  const Json& value = part[key];
  if (!value.is_number() || value.get<double>() < 0 || value.get<double>() != std::floor(value.get<double>())) fail("{}: {} is {}; it has to be a whole number of at least 0", what, key, value.dump());
  return static_cast<int64_t>(std::min(value.get<double>(), static_cast<double>(Gbnf::kEndless)));
}

bool Schema::matches(const std::string& pattern, const std::string& text) const {
  const Regex regex(pattern, what_);
  RegexSearch search(regex);
  std::vector<Span> found;
  search.find_all(found, text);
  return !found.empty();
}

bool Schema::fits(const Json& value, const Json& part, int depth) const {
  if (part.is_boolean()) return part.get<bool>();
  if (!part.is_object() || depth > kMostSchemaDepth) return true;
  const auto fits_here = [&](const Json& schema) { return fits(value, schema, depth + 1); };
  const auto get = [&](const char* key) -> const Json* { return part.contains(key) ? &part[key] : nullptr; };
  if (const Json* ref = get("$ref"); ref && ref->is_string() && !fits_here(resolve(*ref))) return false;
  if (const Json* all = get("allOf"); all && !std::ranges::all_of(*all, fits_here)) return false;
  if (const Json* any = get("anyOf"); any && std::ranges::none_of(*any, fits_here)) return false;
  if (const Json* one = get("oneOf"); one && std::ranges::count_if(*one, fits_here) != 1) return false;
  if (const Json* no = get("not"); no && fits_here(*no)) return false;
  if (const Json* condition = get("if")) {
    const Json* then = get(fits_here(*condition) ? "then" : "else");
    if (then && !fits_here(*then)) return false;
  }
  if (const Json* is = get("const"); is && *is != value) return false;
  if (const Json* of = get("enum"); of && std::ranges::find(*of, value) == of->end()) return false;
  const uint8_t type = type_of(value);
  if (const Json* types = get("type")) {
    uint8_t allowed = 0;
    for (const Json& name : types->is_array() ? *types : Json::array({*types})) allowed |= type_named(name, what_);
    if (!(allowed & type) && !(value.is_null() && part.value("nullable", Json(false)) == true)) return false;
  }
  const auto count = [&](const char* key, int64_t otherwise) { return count_of(part, key, otherwise, what_); };
  if (value.is_number()) {
    const double x = value.get<double>();
    const bool low = part.value("exclusiveMinimum", Json(false)) == true, high = part.value("exclusiveMaximum", Json(false)) == true;
    if (const Json* b = get("minimum"); b && (x < b->get<double>() || (low && x == b->get<double>()))) return false;
    if (const Json* b = get("maximum"); b && (x > b->get<double>() || (high && x == b->get<double>()))) return false;
    if (const Json* b = get("exclusiveMinimum"); b && b->is_number() && x <= b->get<double>()) return false;
    if (const Json* b = get("exclusiveMaximum"); b && b->is_number() && x >= b->get<double>()) return false;
    if (const Json* m = get("multipleOf"); m && x / m->get<double>() != std::floor(x / m->get<double>())) return false;
  }
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const auto n = static_cast<int64_t>(to_code_points(text).size());
    if (n < count("minLength", 0) || n > count("maxLength", Gbnf::kEndless)) return false;
    if (const Json* pattern = get("pattern"); pattern && !matches(*pattern, text)) return false;
  }
  if (value.is_array()) {
    const auto n = static_cast<int64_t>(value.size());
    if (n < count("minItems", 0) || n > count("maxItems", Gbnf::kEndless)) return false;
    const bool tuple = part.contains("items") && part["items"].is_array();
    const Json* prefix = get(tuple ? "items" : "prefixItems");
    const Json* rest = get(tuple ? "additionalItems" : "items");
    for (int64_t i = 0; i < n; ++i) {
      const Json* schema = prefix && i < static_cast<int64_t>(prefix->size()) ? &(*prefix)[i] : rest;
      if (schema && !fits(value[i], *schema, depth + 1)) return false;
    }
    if (part.value("uniqueItems", Json(false)) == true) {
      for (int64_t i = 0; i < n; ++i) for (int64_t j = 0; j < i; ++j) if (value[i] == value[j]) return false;
    }
    if (const Json* contains = get("contains")) {
      const int64_t found = std::ranges::count_if(value, [&](const Json& v) { return fits(v, *contains, depth + 1); });
      if (found < count("minContains", 1) || found > count("maxContains", Gbnf::kEndless)) return false;
    }
  }
  if (value.is_object()) {
    const auto n = static_cast<int64_t>(value.size());
    if (n < count("minProperties", 0) || n > count("maxProperties", Gbnf::kEndless)) return false;
    if (const Json* required = get("required"); required && required->is_array()) {
      for (const Json& name : *required) if (!value.contains(name.get<std::string>())) return false;
    }
    for (const auto& [name, inner] : value.items()) {
      bool listed = false;
      if (const Json* properties = get("properties"); properties && properties->contains(name)) {
        listed = true;
        if (!fits(inner, (*properties)[name], depth + 1)) return false;
      }
      if (const Json* patterns = get("patternProperties")) {
        for (const auto& [pattern, schema] : patterns->items()) {
          if (!matches(pattern, name)) continue;
          listed = true;
          if (!fits(inner, schema, depth + 1)) return false;
        }
      }
      if (const Json* other = get("additionalProperties"); other && !listed && !fits(inner, *other, depth + 1)) return false;
      if (const Json* names = get("propertyNames"); names && !fits(Json(name), *names, depth + 1)) return false;
    }
    for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      const Json* depends = get(key);
      if (!depends) continue;
      for (const auto& [name, on] : depends->items()) {
        if (!value.contains(name)) continue;
        if (on.is_array()) {
          for (const Json& other : on) if (!value.contains(other.get<std::string>())) return false;
        } else if (!fits_here(on)) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace ridge
