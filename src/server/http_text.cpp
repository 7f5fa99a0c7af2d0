#include "server/http_text.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <random>

namespace ridge {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_lower_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 201: return "Created";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    case 529: return "Overloaded";
  }
  return status < 400 ? "OK" : "Error";
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return out;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && lower_case(a) == lower_case(b);
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size() || hex_value(text[i + 1]) < 0 || hex_value(text[i + 2]) < 0) return std::nullopt;
      out += char(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' && plus_is_space ? ' ' : text[i];
    }
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> out;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view name = pair.substr(0, equals), value = equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1);
    out.emplace_back(percent_decode(name, true).value_or(std::string(name)), percent_decode(value, true).value_or(std::string(value)));
  }
  return out;
}

std::string random_hex(int n_digits) {
  std::array<unsigned char, 32> bytes{};
  const size_t n_bytes = std::min(bytes.size(), size_t(n_digits + 1) / 2);
  if (::getrandom(bytes.data(), n_bytes, 0) != ssize_t(n_bytes)) {
    std::random_device device;
    for (unsigned char& b : bytes) b = static_cast<unsigned char>(device());
  }
  std::string out;
  for (size_t i = 0; i < n_bytes; ++i) out += fmt::format("{:02x}", bytes[i]);
  out.resize(size_t(n_digits), '0');
  return out;
}

std::string request_id_from(std::string_view header) {
  const auto harmless = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::string_view("-_.:/+=@").find(c) != std::string_view::npos; };
  if (!header.empty() && header.size() <= 128 && std::all_of(header.begin(), header.end(), harmless)) return std::string(header);
  return "req_" + random_hex(24);
}

std::string trace_id_from(std::string_view t) {
  const bool whole = t.size() >= 55 && t[2] == '-' && t[35] == '-' && t[52] == '-' && is_lower_hex(t.substr(0, 2)) && t.substr(0, 2) != "ff" &&
                     is_lower_hex(t.substr(3, 32)) && is_lower_hex(t.substr(36, 16)) && is_lower_hex(t.substr(53, 2)) && (t.size() == 55 || t[55] == '-');
  if (whole && t.substr(3, 32).find_first_not_of('0') != std::string_view::npos) return std::string(t.substr(3, 32));
  return random_hex(32);
}

bool matches_any_key(std::string_view given, const std::vector<std::string>& keys) {
  bool found = false;
  for (const std::string& key : keys) {
    if (key.empty()) continue;
    unsigned differs = given.size() == key.size() ? 0u : 1u;
    for (size_t i = 0; i < given.size(); ++i) differs |= unsigned(given[i] ^ key[i % key.size()]);
    found |= differs == 0;
  }
  return found;
}

std::string http_date() {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  ::gmtime_r(&now, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[t.tm_wday], t.tm_mday, kMonths[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

std::string log_value(std::string_view text) {
  const auto plain = [](char c) { return c > ' ' && c < 127 && c != '"' && c != '\\' && c != '='; };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\', out += c;
    else if (static_cast<unsigned char>(c) < 32 || c == 127) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else out += c;
  }
  return out + '"';
}

}  // namespace ridge
