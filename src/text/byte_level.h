// GPT-2's byte alphabet: each of the 256 bytes is written as one printable character (a space as U+0120), so that a vocabulary of text covers all bytes.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ridge::byte_level {

const std::array<std::string, 256>& characters();                       // byte -> its character, in UTF-8
std::string to_characters(std::string_view bytes);
std::optional<std::string> to_bytes(std::string_view characters);       // none when a character is not of the alphabet

}  // namespace ridge::byte_level
