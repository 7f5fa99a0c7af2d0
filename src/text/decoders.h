// Decoders: the strings of tokens back to text. A decoder maps the list of token strings to another list; the results are joined.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer_json.h"

namespace ridge {

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
  virtual std::string bytes(std::string token) const { return token; }       // one token alone, without what a decoder does across tokens
};

std::unique_ptr<TokenDecoder> make_decoder(const JsonSection& section);              // refuses an unknown type by name
std::unique_ptr<TokenDecoder> make_byte_level_decoder();
std::unique_ptr<TokenDecoder> make_sentencepiece_decoder(bool strip_first_space);    // U+2581 to spaces, <0xXX> to bytes, all fused

}  // namespace ridge
