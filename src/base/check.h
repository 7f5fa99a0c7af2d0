// CHECK(condition) and CHECK_EQ/NE/LT/LE/GT/GE(a, b): a programmer's mistake aborts with the place and the values. Kept in release builds.
#pragma once
#include <fmt/format.h>
#include <fmt/ostream.h>

namespace ridge {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& values);

}  // namespace ridge

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) [[unlikely]] ::ridge::check_failed(__FILE__, __LINE__, #condition, ""); \
  } while (0)

#define RIDGE_CHECK_OP(a, op, b)                                                                       \
  do {                                                                                                 \
    const auto& check_a = (a);                                                                         \
    const auto& check_b = (b);                                                                         \
    if (!(check_a op check_b)) [[unlikely]]                                                            \
      ::ridge::check_failed(__FILE__, __LINE__, #a " " #op " " #b, fmt::format("{} vs {}", check_a, check_b)); \
  } while (0)

#define CHECK_EQ(a, b) RIDGE_CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) RIDGE_CHECK_OP(a, !=, b)
#define CHECK_LT(a, b) RIDGE_CHECK_OP(a, <, b)
#define CHECK_LE(a, b) RIDGE_CHECK_OP(a, <=, b)
#define CHECK_GT(a, b) RIDGE_CHECK_OP(a, >, b)
#define CHECK_GE(a, b) RIDGE_CHECK_OP(a, >=, b)
