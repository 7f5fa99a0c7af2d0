// The string formats of JSON Schema as regular expressions: stricter than their standards where that keeps them short (no leap seconds, plain host names), so that what is
// written is valid for every validator.
#include <map>

#include "text/regular.h"
#include "text/schema_grammar.h"

namespace ridge {

namespace {

constexpr const char* kDay = "(20[0-9]{2}|19[0-9]{2})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))";
constexpr const char* kClock = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,3})?(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])";
constexpr const char* kHost = "[a-z]([a-z0-9]{0,20}[a-z0-9])?(\\.[a-z]([a-z0-9]{0,20}[a-z0-9])?){0,2}\\.[a-z]{2,6}";
constexpr const char* kDecimalByte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

std::string pattern_of(const std::string& format) {
  const std::string byte = kDecimalByte, day = kDay, clock = kClock, host = kHost;
  const std::map<std::string, std::string> patterns = {
      {"date", day},
      {"time", clock},
      {"date-time", day + "T" + clock},
      {"duration", "P([1-9][0-9]{0,2}W|[1-9][0-9]{0,2}D|([1-9][0-9]?Y)([1-9]M)?([1-9]D)?|([1-9][0-9]?D)?T([1-9][0-9]?H([1-5]?[0-9]M)?|[1-9][0-9]?M|[1-9][0-9]?S))"},
      {"email", "[a-z0-9]([a-z0-9._+-]{0,24}[a-z0-9])?@" + host},
      {"idn-email", "[a-z0-9]([a-z0-9._+-]{0,24}[a-z0-9])?@" + host},
      {"hostname", host},
      {"idn-hostname", host},
      {"ipv4", byte + "\\." + byte + "\\." + byte + "\\." + byte},
      {"ipv6", "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"},
      {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"},
      {"uri", "https?://" + host + "(/[A-Za-z0-9._~-]{1,24}){0,4}"},
      {"iri", "https?://" + host + "(/[A-Za-z0-9._~-]{1,24}){0,4}"},
      {"url", "https?://" + host + "(/[A-Za-z0-9._~-]{1,24}){0,4}"},
      {"uri-reference", "(https?://" + host + ")?(/[A-Za-z0-9._~-]{1,24}){1,4}"},
      {"iri-reference", "(https?://" + host + ")?(/[A-Za-z0-9._~-]{1,24}){1,4}"},
      {"uri-template", "https?://" + host + "(/[A-Za-z0-9._~-]{1,24}|/\\{[a-z]{1,16}\\}){0,4}"},
      {"json-pointer", "(/[A-Za-z0-9_-]{1,24}){0,6}"},
      {"relative-json-pointer", "(0|[1-9][0-9]?)(/[A-Za-z0-9_-]{1,24}){0,6}"},
      {"regex", "\\^?[A-Za-z0-9]{1,24}\\$?"},
      {"byte", "([A-Za-z0-9+/]{4}){0,64}([A-Za-z0-9+/]{4}|[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)"},
  };
  const auto found = patterns.find(format);
  return found == patterns.end() ? "" : found->second;
}

}  // namespace

Gbnf format_of_text(const std::string& format) {
  const std::string pattern = pattern_of(format);
  return pattern.empty() ? Gbnf::never() : parse_regular(pattern, RegularMatch::whole, "format " + format);
}

}  // namespace ridge
