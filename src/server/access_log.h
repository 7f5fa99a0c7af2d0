// One line per request: "key=value" pairs, or JSON.
#pragma once
#include <cstdint>
#include <string>

namespace ridge {

struct AccessLine {
  std::string id, trace_id, peer, method, path;
  int status = 0;                            // 499: the client left before the answer was complete
  int64_t n_bytes = 0;
  double seconds = 0;
  std::string note;                          // more pairs, from the handler
};

std::string access_line(const AccessLine& line, bool as_json);

}  // namespace ridge
