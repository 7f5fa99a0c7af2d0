// xgrammar behind our interface: what the vocabulary is for it, which sources it is given, and what is kept of its work. Its headers are heavy and stay in this file.
#include "text/grammar.h"

#include <algorithm>
#include <bit>
#include <list>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "text/grammar_source.h"
#include "text/regular.h"
#include "text/schema_grammar.h"

#ifdef RIDGE_HAS_XGRAMMAR
#include <xgrammar/xgrammar.h>

// Its log: what is wrong with a source becomes an exception, what it warns of is for those who look for it.
namespace xgrammar {
[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) { throw std::runtime_error(message); }
void LogMessageImpl(const std::string&, int, int, const std::string& message) { ridge::log_debug("xgrammar: {}", message); }
}  // namespace xgrammar

namespace ridge {

class CompiledGrammar {
 public:
  xgrammar::CompiledGrammar compiled;
  bool json;                                 // closing brackets end things
};

namespace {

constexpr size_t kKept = 128;                // compiled grammars
constexpr int64_t kRuleCacheBytes = int64_t{256} << 20;

using Mask = std::vector<uint32_t>;
bool any(std::span<const uint32_t> mask) { return std::ranges::any_of(mask, [](uint32_t word) { return word != 0; }); }

// Sets of tokens for the end of an answer, those that end most first.
struct Endings {
  Mask eos;
  uint32_t last_word;                        // bits of the last word of a mask that are tokens
  // In a text (which the tokens of `in_text` tell: & is nothing else) a quote and what follows it. Elsewhere ] and } alone; with quotes; what begins with a comma or a quote.
  Mask in_text, quoted, closed;              // closed: what opens nothing
  std::vector<Mask> closing;
};

class Matcher final : public TokenFilter {
 public:
  Matcher(std::shared_ptr<const CompiledGrammar> grammar, std::shared_ptr<const Endings> endings, int soft_end)
      : grammar_(std::move(grammar)), endings_(std::move(endings)), soft_end_(soft_end), matcher_(grammar_->compiled, std::nullopt, !any(endings_->eos)) {}

  bool restrict(std::span<uint32_t> mask) override {
    if (done_) return false;
    if (!ready_) compute(mask.size());
    if (everything_ && n_accepted_ < soft_end_) return false;
    std::ranges::copy(next_, mask.begin());
    if (n_accepted_ >= soft_end_) hurry(mask);
    return true;
  }

  void accept(int32_t token) override {
    if (done_) return;
    ready_ = false;
    ++n_accepted_;
    if (!matcher_.AcceptToken(token)) {
      log_error("Token {} came although the grammar did not allow it; the answer goes on without the grammar", token);
      done_ = true;
    } else if (matcher_.IsTerminated()) {
      done_ = true;
    } else if (matcher_.IsCompleted() && any(endings_->eos)) {
      // Whole, and nothing but the end may follow: no step is needed to hear the model say so.
      compute(endings_->eos.size());
      done_ = !everything_ && std::ranges::equal(next_, endings_->eos);
    }
  }

  bool done() const override { return done_; }
  bool stuck() const { return stuck_; }      // nothing could come next

 private:
  void compute(size_t n_words) {
    next_.assign(n_words, ~0u);
    int64_t shape = static_cast<int64_t>(n_words);
    DLTensor tensor{.data = next_.data(), .device = {kDLCPU, 0}, .ndim = 1, .dtype = xgrammar::GetBitmaskDLType(), .shape = &shape, .strides = nullptr, .byte_offset = 0};
    everything_ = !matcher_.FillNextTokenBitmask(&tensor);
    ready_ = true;
    if (everything_) return;
    next_.back() &= endings_->last_word;
    stuck_ = !any(next_);
    if (stuck_) next_ = endings_->eos;      // the vocabulary cannot spell what the grammar wants
  }

  void hurry(std::span<uint32_t> mask) const {
    const auto narrow = [&](const Mask& to) {
      bool some = false;
      for (size_t i = 0; i < mask.size(); ++i) some |= (mask[i] & to[i]) != 0;
      if (some) for (size_t i = 0; i < mask.size(); ++i) mask[i] &= to[i];
      return some;
    };
    if (narrow(endings_->eos) || !grammar_->json) return;
    bool text = false;
    for (size_t i = 0; i < mask.size(); ++i) text |= (mask[i] & endings_->in_text[i]) != 0;
    if (text && narrow(endings_->quoted)) return;
    for (const Mask& set : endings_->closing) if (narrow(set)) return;
    (void)narrow(endings_->closed);          // where an object or null may come: null
  }

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::shared_ptr<const Endings> endings_;
  int soft_end_, n_accepted_ = 0;
  xgrammar::GrammarMatcher matcher_;
  Mask next_;                                // what may come next, once `ready_`
  bool ready_ = false, everything_ = false, done_ = false, stuck_ = false;
};

}  // namespace

struct GrammarCompiler::State {
  State(const Tokenizer& tokenizer, int n_vocab, std::vector<int32_t> eos_ids) : specials(special_tokens(tokenizer, eos_ids)), compiler(vocabulary(tokenizer, n_vocab, eos_ids), 1, true, kRuleCacheBytes) {
    Endings made;
    const size_t n_words = (static_cast<size_t>(n_vocab) + 31) / 32;
    made.eos.resize(n_words);
    made.last_word = n_vocab % 32 == 0 ? ~0u : (1u << (n_vocab % 32)) - 1;
    made.in_text.resize(n_words);
    made.quoted.resize(n_words);
    made.closed.resize(n_words);
    made.closing.assign(3, Mask(n_words));
    const auto set = [](Mask& mask, int32_t id) { mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32); };
    for (int32_t id : eos_ids) if (id >= 0 && id < n_vocab) set(made.eos, id);
    for (int32_t id = 0; id < std::min(n_vocab, tokenizer.n_vocab()); ++id) {
      if (tokenizer.is_special(id)) continue;
      const std::string bytes = tokenizer.token_bytes(id);
      if (bytes.empty()) continue;
      if (bytes == "&") set(made.in_text, id);
      if (bytes.find_first_of("{[") == bytes.npos) set(made.closed, id);
      if (bytes[0] == '"' && bytes.find_first_not_of("\"]},") == bytes.npos) set(made.quoted, id);
      if (bytes.find_first_not_of("]}") == bytes.npos) set(made.closing[0], id);
      if (bytes.find_first_not_of("\"]}") == bytes.npos) set(made.closing[1], id);
      if (bytes[0] == ',' || bytes[0] == '"') set(made.closing[2], id);
    }
    endings = std::make_shared<const Endings>(std::move(made));
  }

  static xgrammar::TokenizerInfo vocabulary(const Tokenizer& tokenizer, int n_vocab, const std::vector<int32_t>& eos_ids) {
    std::vector<std::string> words(static_cast<size_t>(n_vocab));             // no text: never allowed by its text
    for (int32_t id = 0; id < std::min(n_vocab, tokenizer.n_vocab()); ++id) {
      // What has no text can never be accepted, not even as a token by its id: specials get one that no grammar can spell, since 0xff is in no UTF-8.
      const bool ends = std::ranges::find(eos_ids, id) != eos_ids.end();
      if (!tokenizer.is_special(id)) words[id] = tokenizer.token_bytes(id);
      else if (!ends) words[id] = "\xff" + tokenizer.token_name(id);
    }
    std::vector<int32_t> stops;
    for (int32_t id : eos_ids) if (id >= 0 && id < n_vocab) stops.push_back(id);
    return xgrammar::TokenizerInfo(words, xgrammar::VocabType::RAW, n_vocab, stops, false);
  }

  // From what is kept, or compiled now. One at a time: compiling must not take the machine from those who are being served.
  std::shared_ptr<const CompiledGrammar> get(const std::string& key, bool json, const auto& make_source) {
    if (auto found = kept(key)) return found;
    std::lock_guard compiling(compile_mutex);
    if (auto found = kept(key)) return found;
    const std::string source = make_source();
    std::shared_ptr<CompiledGrammar> made;
    try {
      // As text: a grammar object would be written and read again, and \xdf followed by an e comes back as one character (xgrammar 0.2.8).
      made = std::make_shared<CompiledGrammar>(CompiledGrammar{compiler.CompileGrammar(source, "root"), json});
    } catch (const std::exception& error) {
      fail("The grammar cannot be compiled: {}", error.what());
    }
    Matcher first(made, endings, kNoSoftEnd);
    Mask mask(endings->eos.size(), ~0u);
    (void)first.restrict(mask);
    if (first.stuck()) fail("The grammar can match nothing that this vocabulary can spell");
    std::lock_guard lock(mutex);
    order.push_front(key);
    grammars[key] = {made, order.begin()};
    if (order.size() > kKept) {
      grammars.erase(order.back());
      order.pop_back();
    }
    return made;
  }

  std::shared_ptr<const CompiledGrammar> kept(const std::string& key) {
    std::lock_guard lock(mutex);
    const auto found = grammars.find(key);
    if (found == grammars.end()) return nullptr;
    order.splice(order.begin(), order, found->second.place);
    return found->second.grammar;
  }

  struct Kept {
    std::shared_ptr<const CompiledGrammar> grammar;
    std::list<std::string>::iterator place;
  };
  std::vector<SpecialToken> specials;
  xgrammar::GrammarCompiler compiler;
  std::shared_ptr<const Endings> endings;
  std::mutex mutex, compile_mutex;
  std::list<std::string> order;              // of use, the latest first
  std::unordered_map<std::string, Kept> grammars;
};

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, int n_vocab, std::vector<int32_t> eos_ids) : state_(std::make_unique<State>(tokenizer, n_vocab, std::move(eos_ids))) {}
GrammarCompiler::~GrammarCompiler() = default;
bool GrammarCompiler::available() { return true; }

std::shared_ptr<const CompiledGrammar> GrammarCompiler::json_schema(const Json& schema) {
  return state_->get("schema " + schema.dump(-1, ' ', false, Json::error_handler_t::replace), true, [&] { return schema_source(schema); });
}

std::shared_ptr<const CompiledGrammar> GrammarCompiler::json_object() {
  return state_->get("object", true, [] { return schema_source(Json{{"type", "object"}}); });
}

std::shared_ptr<const CompiledGrammar> GrammarCompiler::regex(std::string_view pattern) {
  return state_->get("regex " + std::string(pattern), false, [&] { return regex_source(pattern); });
}

std::shared_ptr<const CompiledGrammar> GrammarCompiler::choice(const std::vector<std::string>& choices) {
  return state_->get("choice " + Json(choices).dump(-1, ' ', false, Json::error_handler_t::replace), false, [&] { return choice_source(choices); });
}

std::shared_ptr<const CompiledGrammar> GrammarCompiler::gbnf(std::string_view grammar) {
  return state_->get("gbnf " + std::string(grammar), true, [&] { return gbnf_source(grammar, state_->specials); });
}

std::shared_ptr<TokenFilter> GrammarCompiler::start(std::shared_ptr<const CompiledGrammar> grammar, int soft_end) const {
  return std::make_shared<Matcher>(std::move(grammar), state_->endings, soft_end);
}

}  // namespace ridge

#else

namespace ridge {

class CompiledGrammar {};
struct GrammarCompiler::State {};

namespace {
[[noreturn]] void refuse() { fail("This build has no structured output (response_format, guided answers, forced tool calls): configure it with -DRIDGE_XGRAMMAR=ON"); }
}  // namespace

GrammarCompiler::GrammarCompiler(const Tokenizer&, int, std::vector<int32_t>) {}
GrammarCompiler::~GrammarCompiler() = default;
bool GrammarCompiler::available() { return false; }
std::shared_ptr<const CompiledGrammar> GrammarCompiler::json_schema(const Json&) { refuse(); }
std::shared_ptr<const CompiledGrammar> GrammarCompiler::json_object() { refuse(); }
std::shared_ptr<const CompiledGrammar> GrammarCompiler::regex(std::string_view) { refuse(); }
std::shared_ptr<const CompiledGrammar> GrammarCompiler::choice(const std::vector<std::string>&) { refuse(); }
std::shared_ptr<const CompiledGrammar> GrammarCompiler::gbnf(std::string_view) { refuse(); }
std::shared_ptr<TokenFilter> GrammarCompiler::start(std::shared_ptr<const CompiledGrammar>, int) const { refuse(); }

}  // namespace ridge

#endif
