// Properties of characters and Unicode normal forms, as the parts of Hugging Face's tokenizers define them (utf8proc's tables, Unicode 15).
#pragma once
#include <string>
#include <string_view>

namespace ridge {

bool is_whitespace(char32_t c);              // Unicode White_Space
bool is_numeric(char32_t c);                 // Nd, Nl, No
bool is_punctuation(char32_t c);             // ASCII punctuation, or any P category
bool is_control(char32_t c);                 // Cc, Cf, Co, Cs, but not tab, line feed and carriage return
bool is_mark(char32_t c);                    // Mn, Mc, Me
bool is_nonspacing_mark(char32_t c);         // Mn
bool is_word(char32_t c);                    // letters, marks, decimal digits, connectors: \w
bool is_cjk_ideograph(char32_t c);           // the blocks BERT puts spaces around

enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, NormalForm form);      // text: well-formed UTF-8
std::string lowercase(std::string_view text);                       // character by character, without context

// Bytes of the first extended grapheme cluster of `text`, which is not empty and well-formed.
size_t first_grapheme_bytes(std::string_view text);

}  // namespace ridge
