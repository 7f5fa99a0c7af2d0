// A progress bar on stderr for what may take long. Nothing is shown for the first half second; on a terminal one line is redrawn and erased at the end, elsewhere
// a plain line appears every few seconds, so that logs stay readable.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace ridge {

class Progress {
 public:
  explicit Progress(std::string title);
  ~Progress();                                                       // erases the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(double share, const std::string& detail = "");         // share in [0, 1]; below 0: unknown
  void update_bytes(int64_t done, int64_t total);                     // "41.2 of 92.9 MB, 11.3 MB/s, 5 s left"; total 0: unknown
  void finish();                                                      // erases the line; the next update starts over

 private:
  using Clock = std::chrono::steady_clock;
  void draw(double share, const std::string& detail);
  std::string title_;
  Clock::time_point start_ = Clock::now(), last_ = start_;
  bool terminal_, shown_ = false;
  int64_t first_bytes_ = -1;                                          // where a resumed transfer began: it does not count for the speed
};

void silence_progress();                                              // for --quiet: no bar is shown from now on

bool stderr_is_terminal();
bool stdout_is_terminal();
bool stdin_is_terminal();
int terminal_width();                                                 // columns of the terminal on stderr, 80 when unknown

std::string human_bytes(double n);                                    // 1234567 -> "1.2 MB"; decimal units, as bandwidths are given
std::string human_count(double n);                                    // 134515008 -> "134.5M"
std::string human_seconds(double s);                                  // "0.34 s", "2 min 5 s"

}  // namespace ridge
