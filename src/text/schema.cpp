#include "text/schema.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/schema_types.h"

namespace ridge {

namespace {

constexpr size_t kMostAlternatives = 256;
constexpr size_t kMostSchemaBytes = size_t{1} << 20;
constexpr int kMostSchemaNesting = 64;

bool is_schema(const Json& part) { return part.is_object() || part.is_boolean(); }

Json all_of(const Json& a, const Json& b) {
  if (a == true || a == b) return b;
  if (b == true) return a;
  if (a == false || b == false) return false;
  return {{"allOf", {a, b}}};
}

double number(const NumberBound& bound) { return std::stod(bound.digits); }

void check_nesting(const Json& json, int depth, const std::string& what) {
  if (depth > kMostSchemaNesting) fail("{} is nested more than {} levels deep", what, kMostSchemaNesting);
  if (json.is_structured()) for (const Json& inner : json) check_nesting(inner, depth + 1, what);
}

}  // namespace

const Json* FlatSchema::property(const std::string& name) const {
  for (const auto& [key, schema] : properties) if (key == name) return &schema;
  return nullptr;
}

Schema::Schema(const Json& root, std::string what) : root_(root), what_(std::move(what)) {
  if (!is_schema(root)) fail("{}: a schema is an object, true or false; this is {}", what_, root.type_name());
  check_nesting(root_, 0, what_);
  if (const size_t n = root_.dump(-1, ' ', false, Json::error_handler_t::replace).size(); n > kMostSchemaBytes) fail("{} is {} bytes long; at most {} are taken", what_, n, kMostSchemaBytes);
}

const Json& Schema::resolve(const std::string& reference) const {
  if (reference == "#" || reference == root_.value("$id", std::string("#"))) return root_;
  if (reference.starts_with("#/")) {
    try {
      std::string pointer;                          // of a fragment: %XX are bytes
      for (size_t i = 1; i < reference.size(); ++i) {
        if (reference[i] == '%' && i + 2 < reference.size() && std::isxdigit(static_cast<unsigned char>(reference[i + 1])) && std::isxdigit(static_cast<unsigned char>(reference[i + 2]))) {
          pointer += static_cast<char>(std::stoi(reference.substr(i + 1, 2), nullptr, 16));
          i += 2;
        } else {
          pointer += reference[i];
        }
      }
      const Json& found = root_.at(Json::json_pointer(pointer));
      if (!is_schema(found)) fail("{}: $ref '{}' does not lead to a schema", what_, reference);
      return found;
    } catch (const Json::exception&) {
      fail("{}: $ref '{}' leads nowhere", what_, reference);
    }
  }
  for (const char* key : {"$defs", "definitions"}) {            // by $anchor or $id
    if (!root_.is_object() || !root_.contains(key) || !root_[key].is_object()) continue;
    for (const Json& part : root_[key]) {
      if (!part.is_object()) continue;
      for (const char* name : {"$id", "$anchor", "$dynamicAnchor"}) {
        if (!part.contains(name) || !part[name].is_string()) continue;
        const std::string id = part[name];
        if (id == reference || "#" + id == reference) return part;
      }
    }
  }
  fail("{}: $ref '{}' is not inside this schema; put what it names into $defs", what_, reference);
}

// What a property must be by a schema that may not list it.
Json Schema::constraint(const FlatSchema& of, const std::string& name) const {
  Json out = true;
  bool listed = false;
  if (const Json* own = of.property(name)) {
    out = *own;
    listed = true;
  }
  for (const auto& [pattern, schema] : of.pattern_properties) {
    if (!matches(pattern, name)) continue;
    out = all_of(out, schema);
    listed = true;
  }
  return listed ? out : of.additional;
}

FlatSchema Schema::keywords(const Json& part) const {
  FlatSchema out;
  out.sources.push_back(part);
  const auto has = [&](const char* key) { return part.contains(key); };
  const auto expect = [&](const char* key, bool good, const char* form) {
    if (!good) fail("{}: {} has to be {}; it is {}", what_, key, form, part[key].dump());
  };

  if (has("type")) {
    const Json& type = part["type"];
    expect("type", type.is_string() || (type.is_array() && !type.empty()), "a type's name or a list of them");
    out.types = 0;
    for (const Json& name : type.is_array() ? type : Json::array({type})) {
      expect("type", name.is_string(), "a type's name or a list of them");
      out.types |= type_named(name, what_);
    }
    if (part.value("nullable", Json(false)) == true) out.types |= kNull;           // OpenAPI's
  } else {
    // Keywords of one kind of value mean that kind, where the author left the type out.
    const auto any = [&](std::initializer_list<const char*> keys) { return std::ranges::any_of(keys, has); };
    if (any({"properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties", "propertyNames"})) out.types = kObject;
    else if (any({"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"})) out.types = kArray;
    else if (any({"pattern", "minLength", "maxLength", "format"})) out.types = kString;
    else if (any({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) out.types = kNumber;
  }
  if (has("const")) out.values = std::vector<Json>{part["const"]};
  if (has("enum")) {
    expect("enum", part["enum"].is_array(), "a list of values");
    out.values = part["enum"].get<std::vector<Json>>();
    if (out.values->size() > 10000) fail("{}: enum has {} values; at most 10000 are taken", what_, out.values->size());
  }
  if (out.values && !has("type")) out.types = kAnyType;

  const auto bound = [&](const char* key, bool exclusive) -> NumberBound {
    expect(key, part[key].is_number(), "a number");
    return {plain_decimal(part[key].dump(), what_), exclusive};
  };
  if (has("minimum")) out.low = bound("minimum", part.value("exclusiveMinimum", Json(false)) == true);
  if (has("maximum")) out.high = bound("maximum", part.value("exclusiveMaximum", Json(false)) == true);
  if (has("exclusiveMinimum") && !part["exclusiveMinimum"].is_boolean()) {
    const NumberBound b = bound("exclusiveMinimum", true);
    if (out.low.digits.empty() || number(b) >= number(out.low)) out.low = b;
  }
  if (has("exclusiveMaximum") && !part["exclusiveMaximum"].is_boolean()) {
    const NumberBound b = bound("exclusiveMaximum", true);
    if (out.high.digits.empty() || number(b) <= number(out.high)) out.high = b;
  }
  if (has("multipleOf")) {
    expect("multipleOf", part["multipleOf"].is_number() && part["multipleOf"].get<double>() > 0, "a number greater than 0");
    out.multiples.push_back(part["multipleOf"]);
  }

  out.min_length = count_of(part, "minLength", 0, what_);
  out.max_length = count_of(part, "maxLength", Gbnf::kEndless, what_);
  if (has("pattern")) {
    expect("pattern", part["pattern"].is_string(), "a regular expression");
    out.patterns.push_back(part["pattern"]);
  }
  if (has("format") && part["format"].is_string()) out.format = part["format"];

  const bool tuple = has("items") && part["items"].is_array();       // until draft 2019-09
  const char* prefix = tuple ? "items" : "prefixItems";
  if (has(prefix)) {
    expect(prefix, part[prefix].is_array() && std::ranges::all_of(part[prefix], is_schema), "a list of schemas");
    out.prefix = part[prefix].get<std::vector<Json>>();
  }
  const char* rest = tuple ? "additionalItems" : "items";
  if (has(rest)) {
    expect(rest, is_schema(part[rest]), "a schema");
    out.items = part[rest];
    out.has_items = true;
  }
  out.min_items = count_of(part, "minItems", 0, what_);
  out.max_items = count_of(part, "maxItems", Gbnf::kEndless, what_);
  out.unique = part.value("uniqueItems", Json(false)) == true;
  if (has("contains")) {                                               // its items come first
    if (has("maxContains")) fail("{}: maxContains is not supported", what_);
    const int64_t n = count_of(part, "minContains", 1, what_);
    if (n > 64) fail("{}: minContains is {}; at most 64 is supported", what_, n);
    for (int64_t i = 0; i < n; ++i) {
      if (static_cast<size_t>(i) < out.prefix.size()) out.prefix[i] = all_of(out.prefix[i], part["contains"]);
      else out.prefix.push_back(all_of(out.items, part["contains"]));
    }
    out.min_items = std::max(out.min_items, n);
    if (!out.has_items) out.has_items = true;
  }

  if (has("properties")) {
    expect("properties", part["properties"].is_object(), "an object of schemas");
    out.has_properties = true;
    for (const auto& [name, schema] : part["properties"].items()) {
      if (!is_schema(schema)) fail("{}: property '{}' has to be a schema; it is {}", what_, name, schema.dump());
      out.properties.emplace_back(name, schema);
    }
  }
  if (has("required") && part["required"].is_array()) {
    for (const Json& name : part["required"]) {
      expect("required", name.is_string(), "a list of names");
      out.required.insert(name.get<std::string>());
    }
  } else if (has("required")) {
    expect("required", part["required"].is_boolean(), "a list of names");
  }
  if (has("patternProperties")) {
    expect("patternProperties", part["patternProperties"].is_object(), "an object of schemas");
    for (const auto& [pattern, schema] : part["patternProperties"].items()) out.pattern_properties.emplace_back(pattern, schema);
  }
  if (has("additionalProperties")) {
    expect("additionalProperties", is_schema(part["additionalProperties"]), "a schema");
    out.additional = part["additionalProperties"];
    out.has_additional = true;
  }
  if (has("propertyNames")) {
    expect("propertyNames", is_schema(part["propertyNames"]), "a schema");
    out.names = part["propertyNames"];
  }
  out.min_properties = count_of(part, "minProperties", 0, what_);
  out.max_properties = count_of(part, "maxProperties", Gbnf::kEndless, what_);
  for (auto& [name, schema] : out.properties) {                        // what a listed property must be by its patterns too
    for (const auto& [pattern, also] : out.pattern_properties) if (matches(pattern, name)) schema = all_of(schema, also);
    if (out.names != true && !fits(Json(name), out.names)) schema = false;
  }
  for (const std::string& name : out.required) {
    if (out.property(name) == nullptr) out.properties.emplace_back(name, constraint(out, name));
  }
  return out;
}

std::optional<FlatSchema> Schema::merge(const FlatSchema& a, const FlatSchema& b) const {
  FlatSchema out = a;
  out.types = a.types & b.types;
  if (out.types == 0) return std::nullopt;
  if (b.values) {
    if (!out.values) {
      out.values = b.values;
    } else {
      std::erase_if(*out.values, [&](const Json& v) { return std::ranges::find(*b.values, v) == b.values->end(); });
    }
  }
  out.excluded.insert(out.excluded.end(), b.excluded.begin(), b.excluded.end());
  out.sources.insert(out.sources.end(), b.sources.begin(), b.sources.end());
  const auto tighter = [](const NumberBound& x, const NumberBound& y, int sign) {
    if (x.digits.empty() || y.digits.empty()) return x.digits.empty() ? y : x;
    const double difference = sign * (number(x) - number(y));
    return difference > 0 || (difference == 0 && x.exclusive) ? x : y;
  };
  out.low = tighter(a.low, b.low, 1);
  out.high = tighter(a.high, b.high, -1);
  out.multiples.insert(out.multiples.end(), b.multiples.begin(), b.multiples.end());
  out.min_length = std::max(a.min_length, b.min_length);
  out.max_length = std::min(a.max_length, b.max_length);
  for (const std::string& pattern : b.patterns) if (std::ranges::find(out.patterns, pattern) == out.patterns.end()) out.patterns.push_back(pattern);
  if (out.format.empty()) out.format = b.format;
  else if (!b.format.empty() && b.format != out.format) fail("{}: one string cannot have both formats '{}' and '{}'", what_, out.format, b.format);

  out.prefix.clear();
  for (size_t i = 0; i < std::max(a.prefix.size(), b.prefix.size()); ++i) {
    out.prefix.push_back(all_of(i < a.prefix.size() ? a.prefix[i] : a.items, i < b.prefix.size() ? b.prefix[i] : b.items));
  }
  out.items = all_of(a.items, b.items);
  out.has_items = a.has_items || b.has_items;
  out.min_items = std::max(a.min_items, b.min_items);
  out.max_items = std::min(a.max_items, b.max_items);
  out.unique = a.unique || b.unique;

  out.properties.clear();
  for (const auto& [name, schema] : a.properties) out.properties.emplace_back(name, all_of(schema, constraint(b, name)));
  for (const auto& [name, schema] : b.properties) if (a.property(name) == nullptr) out.properties.emplace_back(name, all_of(constraint(a, name), schema));
  out.required.insert(b.required.begin(), b.required.end());
  out.pattern_properties.insert(out.pattern_properties.end(), b.pattern_properties.begin(), b.pattern_properties.end());
  out.additional = all_of(a.additional, b.additional);
  out.has_properties = a.has_properties || b.has_properties;
  out.has_additional = a.has_additional || b.has_additional;
  out.names = all_of(a.names, b.names);
  out.min_properties = std::max(a.min_properties, b.min_properties);
  out.max_properties = std::min(a.max_properties, b.max_properties);
  return out;
}

std::vector<FlatSchema> Schema::cross(const std::vector<FlatSchema>& a, const std::vector<FlatSchema>& b) const {
  std::vector<FlatSchema> out;
  for (const FlatSchema& x : a) {
    for (const FlatSchema& y : b) {
      if (std::optional<FlatSchema> merged = merge(x, y)) out.push_back(std::move(*merged));
      if (out.size() > kMostAlternatives) fail("{}: its combinations of anyOf, oneOf and if are more than {}", what_, kMostAlternatives);
    }
  }
  return out;
}

std::vector<FlatSchema> Schema::flatten(const Json& part) const { return flatten(part, 0); }

std::vector<FlatSchema> Schema::flatten(const Json& part, int depth) const {
  if (depth > kMostSchemaDepth) fail("{}: $ref and combinations lead into one another more than {} deep: does one refer to itself?", what_, kMostSchemaDepth);
  if (part == true) return {FlatSchema{}};
  if (part == false) return {};
  if (!part.is_object()) fail("{}: a schema is an object, true or false; there is {}", what_, part.dump());
  for (const char* key : {"$dynamicRef", "$recursiveRef"}) if (part.contains(key)) fail("{}: {} is not supported; use $ref", what_, key);

  std::vector<FlatSchema> out = {keywords(part)};
  if (part.contains("$ref")) {
    if (!part["$ref"].is_string()) fail("{}: $ref has to be text", what_);
    out = cross(out, flatten(resolve(part["$ref"]), depth + 1));
  }
  const auto list = [&](const char* key) -> const Json& {
    const Json& branches = part[key];
    if (!branches.is_array() || branches.empty()) fail("{}: {} has to be a list of schemas", what_, key);
    if (branches.size() > kMostAlternatives) fail("{}: {} has {} schemas; at most {} are taken", what_, key, branches.size(), kMostAlternatives);
    return branches;
  };
  if (part.contains("allOf")) for (const Json& branch : list("allOf")) out = cross(out, flatten(branch, depth + 1));
  if (part.contains("anyOf")) {
    std::vector<FlatSchema> any;
    for (const Json& branch : list("anyOf")) {
      std::vector<FlatSchema> flat = flatten(branch, depth + 1);
      any.insert(any.end(), std::make_move_iterator(flat.begin()), std::make_move_iterator(flat.end()));
    }
    out = cross(out, any);
  }
  if (part.contains("oneOf")) out = one_of(out, list("oneOf"), depth);
  if (part.contains("if") && (part.contains("then") || part.contains("else"))) {
    std::vector<FlatSchema> both = cross(cross(out, flatten(part["if"], depth + 1)), flatten(part.value("then", Json(true)), depth + 1));
    try {
      std::vector<FlatSchema> other = cross(cross(out, flatten_not(part["if"], depth + 1)), flatten(part.value("else", Json(true)), depth + 1));
      both.insert(both.end(), std::make_move_iterator(other.begin()), std::make_move_iterator(other.end()));
    } catch (const Error&) {
      if (both.empty()) throw;                      // documents for which the condition holds are enough
    }
    out = std::move(both);
  }
  if (part.contains("not")) out = cross(out, flatten_not(part["not"], depth + 1));
  const auto depends = [&](const std::string& name, const Json& on) {
    if (on.is_array()) return out = cross(out, flatten({{"anyOf", {{{"properties", {{name, false}}}}, {{"required", on}}}}}, depth + 1)), void();
    out = cross(out, flatten({{"anyOf", {{{"properties", {{name, false}}}}, on}}}, depth + 1));
  };
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    if (!part.contains(key)) continue;
    if (!part[key].is_object()) fail("{}: {} has to be an object", what_, key);
    for (const auto& [name, on] : part[key].items()) depends(name, on);
  }
  return out;
}

std::vector<FlatSchema> Schema::flatten_not(const Json& part, int depth) const {
  if (depth > kMostSchemaDepth) fail("{}: nested too deeply", what_);
  if (part == true || (part.is_object() && part.empty())) return {};
  if (part == false) return {FlatSchema{}};
  const auto is_annotation = [](const std::string& key) { return key == "title" || key == "description" || key == "$comment" || key == "default" || key == "examples"; };
  std::vector<FlatSchema> out;
  for (const auto& [key, value] : part.items()) {          // what breaks any one condition breaks them all
    if (is_annotation(key)) continue;
    FlatSchema flat;
    if (key == "type") {
      uint8_t types = 0;
      for (const Json& name : value.is_array() ? value : Json::array({value})) types |= type_named(name.is_string() ? name.get<std::string>() : name.dump(), what_);
      if ((types & kNumber) == kInteger) types |= kFraction;
      flat.types = kAnyType & ~types;
      if (flat.types != 0) out.push_back(flat);
    } else if (key == "const") {
      flat.excluded = {value};
      out.push_back(flat);
    } else if (key == "enum" && value.is_array()) {
      flat.excluded = value.get<std::vector<Json>>();
      out.push_back(flat);
    } else if (key == "required" && value.is_array()) {
      if (part.contains("properties")) continue;           // there
      for (const Json& name : value) {
        flat = FlatSchema{};
        flat.types = kObject;
        flat.properties.emplace_back(name.get<std::string>(), false);
        out.push_back(flat);
      }
    } else if (key == "properties" && value.is_object()) {
      for (const auto& [name, schema] : value.items()) {
        flat = FlatSchema{};
        flat.types = kObject;
        flat.properties.emplace_back(name, Json{{"not", schema}});
        flat.required.insert(name);
        out.push_back(flat);
        if (part.contains("required") && part["required"].is_array() && std::ranges::find(part["required"], Json(name)) != part["required"].end()) {
          flat = FlatSchema{};
          flat.types = kObject;
          flat.properties.emplace_back(name, false);
          out.push_back(flat);
        }
      }
    } else if (key == "anyOf" && value.is_array()) {
      std::vector<FlatSchema> all = {FlatSchema{}};
      for (const Json& branch : value) all = cross(all, flatten_not(branch, depth + 1));
      out.insert(out.end(), all.begin(), all.end());
    } else if (key == "allOf" && value.is_array()) {
      for (const Json& branch : value) {
        const std::vector<FlatSchema> flats = flatten_not(branch, depth + 1);
        out.insert(out.end(), flats.begin(), flats.end());
      }
    } else if (key == "not") {
      const std::vector<FlatSchema> flats = flatten(value, depth + 1);
      out.insert(out.end(), flats.begin(), flats.end());
    } else if (key == "minLength" || key == "maxLength" || key == "minimum" || key == "maximum" || key == "exclusiveMinimum" || key == "exclusiveMaximum" || key == "minItems" || key == "maxItems") {
      if (!value.is_number()) fail("{}: {} has to be a number", what_, key);
      const double n = value.get<double>();
      if (key == "minLength") flat.types = kString, flat.max_length = static_cast<int64_t>(n) - 1;
      if (key == "maxLength") flat.types = kString, flat.min_length = static_cast<int64_t>(std::min(n, 1e9)) + 1;
      if (key == "minItems") flat.types = kArray, flat.max_items = static_cast<int64_t>(n) - 1;
      if (key == "maxItems") flat.types = kArray, flat.min_items = static_cast<int64_t>(std::min(n, 1e9)) + 1;
      const std::string digits = plain_decimal(value.dump(), what_);
      if (key == "minimum") flat.types = kNumber, flat.high = {digits, true};
      if (key == "maximum") flat.types = kNumber, flat.low = {digits, true};
      if (key == "exclusiveMinimum") flat.types = kNumber, flat.high = {digits, false};
      if (key == "exclusiveMaximum") flat.types = kNumber, flat.low = {digits, false};
      if (flat.max_length >= 0 && flat.max_items >= 0) out.push_back(flat);
    } else if (key == "$ref" && value.is_string()) {
      const std::vector<FlatSchema> flats = flatten_not(resolve(value), depth + 1);
      out.insert(out.end(), flats.begin(), flats.end());
    } else {
      fail("{}: 'not' over '{}' is not supported", what_, key);
    }
  }
  return out;
}

// Whether nothing that is made from `made` (which has only the properties it lists) fits `other`.
bool Schema::apart(const FlatSchema& made, const FlatSchema& other, int depth) const {
  if (depth > 4) return false;
  const uint8_t common = made.types & other.types;
  if (common == 0) return true;
  if (made.values) return std::ranges::none_of(*made.values, [&](const Json& v) { return std::ranges::all_of(other.sources, [&](const Json& s) { return fits(v, s); }); });
  if (other.values) return std::ranges::all_of(*other.values, [&](const Json& v) { return (type_of(v) & made.types) == 0 || std::ranges::find(made.excluded, v) != made.excluded.end(); });
  if (common & (kNull | kBoolean)) return false;
  if (common & kNumber) {
    const auto below = [](const NumberBound& high, const NumberBound& low) {
      if (high.digits.empty() || low.digits.empty()) return false;
      return number(high) < number(low) || (number(high) == number(low) && (high.exclusive || low.exclusive));
    };
    if (!below(made.high, other.low) && !below(other.high, made.low)) return false;
  }
  if ((common & kString) && !(made.max_length < other.min_length || other.max_length < made.min_length)) return false;
  if ((common & kArray) && !(made.max_items < other.min_items || other.max_items < made.min_items)) return false;
  if (common & kObject) {
    bool different = false;
    for (const std::string& name : other.required) {
      const Json* mine = made.property(name);
      different |= mine == nullptr ? !made.has_additional || made.additional == false : *mine == false;
    }
    for (const std::string& name : made.required) {
      if (different) break;
      const Json theirs = constraint(other, name);
      if (theirs == false) { different = true; break; }
      if (theirs == true || made.property(name) == nullptr) continue;
      const std::vector<FlatSchema> a = flatten(*made.property(name), kMostSchemaDepth - 16), b = flatten(theirs, kMostSchemaDepth - 16);
      different = std::ranges::all_of(a, [&](const FlatSchema& x) { return std::ranges::all_of(b, [&](const FlatSchema& y) { return apart(x, y, depth + 1); }); });
    }
    if (!different) return false;
  }
  return true;
}

std::vector<FlatSchema> Schema::one_of(const std::vector<FlatSchema>& mine, const Json& branches, int depth) const {
  std::vector<std::vector<FlatSchema>> flats;
  for (const Json& branch : branches) flats.push_back(flatten(branch, depth + 1));
  std::vector<FlatSchema> out;
  bool some = false;
  for (size_t i = 0; i < flats.size(); ++i) {
    for (FlatSchema& made : cross(mine, flats[i])) {
      some = true;
      bool good = true;
      for (size_t j = 0; j < flats.size() && good; ++j) {
        if (j == i) continue;
        for (const FlatSchema& other : flats[j]) {
          if (made.values) {
            std::erase_if(*made.values, [&](const Json& v) { return fits(v, branches[j]); });
            good = !made.values->empty();
            break;
          }
          if (apart(made, other, 0)) continue;
          if (other.values) {                        // not those, then
            made.excluded.insert(made.excluded.end(), other.values->begin(), other.values->end());
            continue;
          }
          // Without an optional property that the other needs it is not the other.
          const auto optional = std::ranges::find_if(other.required, [&](const std::string& name) { return !made.required.contains(name) && !made.has_additional; });
          if (optional == other.required.end()) {
            good = false;
            break;
          }
          for (auto& [name, schema] : made.properties) if (name == *optional) schema = false;
          if (!apart(made, other, 0)) good = false;
        }
      }
      if (good) out.push_back(std::move(made));
    }
  }
  if (out.empty() && some) fail("{}: the schemas of oneOf overlap, and no document can be told to fit exactly one; use anyOf, or a required property with a different const in each", what_);
  return out;
}

}  // namespace ridge
