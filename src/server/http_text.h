// The small texts of HTTP: names of statuses, percent-encoding, ids, dates, keys compared in constant time. No sockets here.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge {

std::string_view reason_phrase(int status);
std::string lower_case(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);

// "%41" -> "A"; nothing when a % is not followed by two hexadecimal digits. In a query a + is a space.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space = false);
std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query);      // what does not decode is kept as it stands

std::string random_hex(int n_digits);
// Of a client's header when it is short and harmless in a log, else a new one.
std::string request_id_from(std::string_view header);
// The trace id of a W3C traceparent ("00-<32 hex>-<16 hex>-<2 hex>"), or a new one.
std::string trace_id_from(std::string_view traceparent);

// Takes the same time wherever the texts differ, and looks at every key.
bool matches_any_key(std::string_view given, const std::vector<std::string>& keys);

std::string http_date();                     // now, as the Date header writes it
// A value for a line of "key=value": quoted and escaped where it has spaces, quotes or control characters.
std::string log_value(std::string_view text);

}  // namespace ridge
