// Normalizers: text to text, before it is split. Each type of tokenizer.json is one small class in normalizers.cpp (Precompiled: charsmap.cpp).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer_json.h"

namespace ridge {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;        // well-formed UTF-8 in and out
};

std::unique_ptr<Normalizer> make_normalizer(const JsonSection& section);                    // refuses an unknown type by name
std::unique_ptr<Normalizer> make_charsmap(std::string_view base64, const std::string& what);   // SentencePiece's precompiled map

// SentencePiece's as GGUF means it: U+2581 before the text (when asked), and for each space.
std::unique_ptr<Normalizer> make_space_marker(bool prepend);

}  // namespace ridge
