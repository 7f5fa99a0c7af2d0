#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include "base/error.h"
#include "base/utf8.h"

namespace ridge {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr size_t kFirstJitStack = 64 << 10, kLargeJitStack = 64 << 20;    // the large one is made only for a match that overflows the machine's 32 KB

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data() ? text.data() : ""); }

}  // namespace

struct Regex::Compiled {
  std::string source;
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Compiled() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string_view what) {
  if (pattern.size() > kMaxPatternBytes) fail("{}: a pattern of {} bytes; at most {} are taken", what, pattern.size(), kMaxPatternBytes);
  if (!utf8::is_valid(pattern)) fail("{}: a pattern that is not UTF-8", what);
  const std::string spelled = oniguruma_to_pcre(pattern, what);
  auto compiled = std::make_unique<Compiled>();
  compiled->source = pattern;
  // MULTILINE: in Oniguruma ^ and $ always mean lines. UCP: \d \b and caseless matching follow Unicode.
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE place = 0;
  compiled->code = pcre2_compile(units(spelled), spelled.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place, context.get());
  if (!compiled->code) fail("{}: the pattern \"{}\" is not a regular expression: {} (at byte {} of \"{}\")", what, pattern, error_text(error), place, spelled);
  compiled->jit = pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE) == 0;
  compiled_ = std::move(compiled);
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

struct RegexSearch::State {
  pcre2_match_data* data;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    if (stack) pcre2_jit_stack_free(stack);
  }
};

RegexSearch::RegexSearch(const Regex& regex) : regex_(&regex), state_(new State{pcre2_match_data_create_from_pattern(regex.compiled_->code, nullptr)}) {
  if (!state_->data) throw std::bad_alloc();
}
RegexSearch::~RegexSearch() = default;

void RegexSearch::find_all(std::vector<Span>& out, std::string_view text) {
  out.clear();
  const Regex::Compiled& re = *regex_->compiled_;
  State& s = *state_;
  const auto context = [&] {
    if (!s.context) s.context = pcre2_match_context_create(nullptr);
    return s.context;
  };
  if (text.size() > (1 << 19)) pcre2_set_match_limit(context(), 10'000'000 + 16 * static_cast<uint32_t>(std::min<size_t>(text.size(), 1 << 27)));
  const auto match = [&](size_t at, uint32_t options) {
    return re.jit && options == 0 ? pcre2_jit_match(re.code, units(text), text.size(), at, 0, s.data, s.context)
                  : pcre2_match(re.code, units(text), text.size(), at, options | PCRE2_NO_UTF_CHECK, s.data, s.context);
  };
  size_t at = 0;
  uint32_t options = 0;
  while (at <= text.size()) {
    int rc = match(at, options);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !s.stack) {
      s.stack = pcre2_jit_stack_create(kFirstJitStack, kLargeJitStack, nullptr);
      pcre2_jit_stack_assign(context(), nullptr, s.stack);
      rc = match(at, options);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
      if (options == 0) break;
      // After an empty match nothing longer begins here: go on one character later.
      if (at >= text.size()) break;
      at += utf8::decode_one(text.substr(at)).n_bytes;
      options = 0;
      continue;
    }
    if (rc < 0) fail("the tokenizer's pattern \"{}\" gave up on a text of {} bytes: {}", re.source, text.size(), error_text(rc));
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(s.data);
    const Span span{found[0], found[1]};
    if (span.begin > span.end || span.end > text.size() || span.begin < at) fail("the tokenizer's pattern \"{}\" moves backwards", re.source);
    const bool touches_last = !out.empty() && span.begin == span.end && span.begin == out.back().end;
    if (!touches_last) out.push_back(span);
    at = span.end;
    options = span.begin == span.end ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0;
  }
}

}  // namespace ridge
