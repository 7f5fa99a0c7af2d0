// What the files of Schema share: types and counts as keywords say them.
#pragma once
#include <cstdint>
#include <string>

#include "base/json.h"
#include "text/schema.h"

namespace ridge {

uint8_t type_named(const std::string& name, const std::string& what);       // throws Error where there is no such type
uint8_t type_of(const Json& value);                                         // 2.0 is an integer
int64_t count_of(const Json& part, const char* key, int64_t otherwise, const std::string& what);

constexpr int kMostSchemaDepth = 48;                 // of references and combinations inside one another

}  // namespace ridge
