// A JSON Schema taken apart. References are followed, allOf is merged and anyOf, oneOf, if and not are multiplied out, so that what is left is a list of Flat schemas: a
// document that one of them describes fits the whole. Wherever the exact set of documents is out of reach, a part of it is taken: every answer is valid, though not
// every valid document can be an answer. What cannot be honoured even so is refused by its keyword's name.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/number_range.h"

namespace ridge {

enum SchemaTypes : uint8_t { kNull = 1, kBoolean = 2, kInteger = 4, kFraction = 8, kNumber = 12, kString = 16, kArray = 32, kObject = 64, kAnyType = 127 };

struct FlatSchema {
  uint8_t types = kAnyType;
  std::optional<std::vector<Json>> values;          // const and enum
  std::vector<Json> excluded;                       // values it must not have
  std::vector<Json> sources;                        // the schemas it was merged from: a value of `values` has to fit them all
  // numbers
  NumberBound low, high;
  std::vector<Json> multiples;
  // strings
  int64_t min_length = 0, max_length = Gbnf::kEndless;
  std::vector<std::string> patterns;
  std::string format;
  // arrays
  std::vector<Json> prefix;
  Json items = true;
  int64_t min_items = 0, max_items = Gbnf::kEndless;
  bool unique = false, has_items = false;
  // objects: properties in the order in which they are to be written
  std::vector<std::pair<std::string, Json>> properties;
  std::set<std::string> required;
  std::vector<std::pair<std::string, Json>> pattern_properties;
  Json additional = true, names = true;             // names: of properties that are not listed
  bool has_properties = false, has_additional = false;       // the schema said it
  int64_t min_properties = 0, max_properties = Gbnf::kEndless;

  const Json* property(const std::string& name) const;
};

class Schema {
 public:
  // Throws Error when it is too large or nested too deeply. `what` names it in messages.
  Schema(const Json& root, std::string what);
  std::vector<FlatSchema> flatten(const Json& part) const;      // `part`: of this schema. Empty: nothing fits
  // Whether a value fits, as far as this knows: unknown keywords and formats always do.
  bool fits(const Json& value, const Json& part) const { return fits(value, part, 0); }
  const Json& root() const { return root_; }
  const std::string& what() const { return what_; }

 private:
  std::vector<FlatSchema> flatten(const Json& part, int depth) const;
  std::vector<FlatSchema> flatten_not(const Json& part, int depth) const;
  std::vector<FlatSchema> cross(const std::vector<FlatSchema>& a, const std::vector<FlatSchema>& b) const;
  std::optional<FlatSchema> merge(const FlatSchema& a, const FlatSchema& b) const;
  FlatSchema keywords(const Json& part) const;
  std::vector<FlatSchema> one_of(const std::vector<FlatSchema>& mine, const Json& branches, int depth) const;
  bool apart(const FlatSchema& made, const FlatSchema& other, int depth) const;
  const Json& resolve(const std::string& reference) const;
  bool fits(const Json& value, const Json& part, int depth) const;
  bool matches(const std::string& pattern, const std::string& text) const;
  Json constraint(const FlatSchema& of, const std::string& name) const;

  Json root_;
  std::string what_;
};

}  // namespace ridge
