// Python's view of text: str is a sequence of code points, ours is UTF-8. Counting, slicing, classes and case of characters as str's methods see them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::jinja {

int64_t n_characters(std::string_view text);
size_t byte_offset(std::string_view text, int64_t character);     // of the character's first byte; the end when there are fewer
bool is_ascii(std::string_view text);

bool is_space(char32_t c);
bool is_line_end(char32_t c);
bool is_printable(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
inline bool is_word(char32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);                          // str.title: a word starts after any character without case
std::string swap_case(std::string_view text);

enum class Side : uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };
std::string_view strip(std::string_view text, Side side, const std::optional<std::string>& characters = std::nullopt);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

// A Python slice over n elements: first index, step and count. Raises for a step of 0.
struct Slice {
  int64_t start, step, count;
};
Slice resolve_slice(int64_t n, std::optional<int64_t> start, std::optional<int64_t> stop, std::optional<int64_t> step);

}  // namespace ridge::jinja
