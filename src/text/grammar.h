// Structured output: JSON Schema, regular expressions, lists of choices and GBNF grammars, compiled to masks over the vocabulary. The compiler is xgrammar's, behind
// this interface; what it gets wrong is mended here. Compiled grammars are kept (least recently used ones go first) and shared by answers.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/token_filter.h"
#include "text/tokenizer.h"

namespace ridge {

class CompiledGrammar;                       // opaque

class GrammarCompiler {
 public:
  // `n_vocab`: of the model's logits, which may be more than the tokenizer's. `eos_ids`: what may end an answer.
  GrammarCompiler(const Tokenizer& tokenizer, int n_vocab, std::vector<int32_t> eos_ids);
  ~GrammarCompiler();
  // From any thread. Throw Error saying where the source is wrong, too large or can match nothing.
  std::shared_ptr<const CompiledGrammar> json_schema(const Json& schema);
  std::shared_ptr<const CompiledGrammar> json_object();
  std::shared_ptr<const CompiledGrammar> regex(std::string_view pattern);
  std::shared_ptr<const CompiledGrammar> choice(const std::vector<std::string>& choices);
  std::shared_ptr<const CompiledGrammar> gbnf(std::string_view grammar);     // its rule `root`
  // For one answer. After `soft_end` tokens the answer hurries: where a text, list or object may end, it ends. Three quarters of max_tokens let nearly every document be whole.
  std::shared_ptr<TokenFilter> start(std::shared_ptr<const CompiledGrammar> grammar, int soft_end = kNoSoftEnd) const;
  static constexpr int kNoSoftEnd = 1 << 30;
  static bool available();                   // false: built without xgrammar; everything else throws Error then

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ridge
