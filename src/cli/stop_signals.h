// SIGINT and SIGTERM as something to wait for, so that a server can end in good order. Only one lives at a time; the handler needs its file to be static.
#pragma once
#include <chrono>

namespace ridge {

class StopSignals {
 public:
  StopSignals();
  ~StopSignals();                                      // the previous behaviour is back
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool wait(std::chrono::milliseconds at_most);        // true: a signal came
};

}  // namespace ridge
