#include "server/access_log.h"

#include <fmt/chrono.h>

#include <chrono>
#include <cmath>
#include <ctime>

#include "base/json.h"
#include "server/http_text.h"

namespace ridge {
namespace {

std::string now_utc() {
  const auto now = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)), ms);
}

// Pairs of the note: numbers as numbers, the rest as text.
void add_note(Json& json, std::string_view note) {
  while (!note.empty()) {
    const std::string_view pair = note.substr(0, note.find(' '));
    note.remove_prefix(std::min(pair.size() + 1, note.size()));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    const std::string key(pair.substr(0, equals)), value(pair.substr(equals + 1));
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (!value.empty() && end == value.c_str() + value.size() && std::isfinite(number)) json[key] = number == std::floor(number) && std::abs(number) < 1e15 ? Json(int64_t(number)) : Json(number);
    else json[key] = value;
  }
}

}  // namespace

std::string access_line(const AccessLine& l, bool as_json) {
  const double ms = std::round(l.seconds * 1e4) / 10;
  if (!as_json)
    return fmt::format("time={} request={} trace={} peer={} method={} path={} status={} bytes={} ms={:.1f}{}{}", now_utc(), log_value(l.id), l.trace_id, l.peer, log_value(l.method),
                       log_value(l.path), l.status, l.n_bytes, ms, l.note.empty() ? "" : " ", l.note);
  Json json{{"time", now_utc()}, {"request", l.id}, {"trace", l.trace_id}, {"peer", l.peer}, {"method", l.method}, {"path", l.path}, {"status", l.status}, {"bytes", l.n_bytes}, {"ms", ms}};
  add_note(json, l.note);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ridge
