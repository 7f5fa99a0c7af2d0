#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace ridge {
namespace {

constexpr double kQuietSeconds = 0.5, kRedrawSeconds = 0.1, kPlainSeconds = 5.0;

bool silent = false;                                                  // set once, while the command line is read

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

std::string scaled(double n, double base, std::initializer_list<const char*> units, const char* separator) {
  auto unit = units.begin();
  while (std::fabs(n) >= base * 0.9995 && unit + 1 != units.end()) n /= base, ++unit;
  const bool whole = unit == units.begin();
  return whole ? fmt::format("{:.0f}{}{}", n, separator, *unit) : fmt::format("{:.1f}{}{}", n, separator, *unit);
}

}  // namespace

void silence_progress() { silent = true; }

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }
bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }

int terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string human_bytes(double n) { return scaled(n, 1000, {"B", "kB", "MB", "GB", "TB"}, " "); }
std::string human_count(double n) { return scaled(n, 1000, {"", "k", "M", "B", "T"}, ""); }

std::string human_seconds(double s) {
  if (s < 1e-3) return fmt::format("{:.0f} us", s * 1e6);
  if (s < 0.1) return fmt::format("{:.1f} ms", s * 1e3);
  if (s < 10) return fmt::format("{:.2f} s", s);
  if (s < 90) return fmt::format("{:.0f} s", s);
  if (s < 5400) return fmt::format("{:.0f} min {:.0f} s", std::floor(s / 60), std::fmod(s, 60));
  return fmt::format("{:.1f} h", s / 3600);
}

Progress::Progress(std::string title) : title_(std::move(title)), terminal_(stderr_is_terminal()) {}
Progress::~Progress() { finish(); }

void Progress::update(double share, const std::string& detail) {
  const auto now = Clock::now();
  if (silent || seconds(now - start_) < kQuietSeconds) return;
  const double pause = terminal_ ? kRedrawSeconds : kPlainSeconds;
  if (shown_ || !terminal_) {
    if (seconds(now - last_) < pause) return;
  }
  last_ = now;
  shown_ = true;
  draw(share, detail);
}

void Progress::update_bytes(int64_t done, int64_t total) {
  if (first_bytes_ < 0) first_bytes_ = done;
  const double elapsed = seconds(Clock::now() - start_), speed = elapsed > 0 ? double(done - first_bytes_) / elapsed : 0;
  std::string detail = total > 0 ? fmt::format("{} of {}", human_bytes(double(done)), human_bytes(double(total))) : human_bytes(double(done));
  if (speed > 0) detail += fmt::format(", {}/s", human_bytes(speed));
  if (speed > 0 && total > done) detail += fmt::format(", {} left", human_seconds(std::ceil(double(total - done) / speed)));
  update(total > 0 ? double(done) / double(total) : -1, detail);
}

void Progress::draw(double share, const std::string& detail) {
  share = std::min(share, 1.0);
  if (!terminal_) {
    const std::string percent = share < 0 ? "" : fmt::format("{:.0f} %", share * 100), separator = detail.empty() || percent.empty() ? "" : ", ";
    fmt::print(stderr, "{}: {}{}{}\n", title_, percent, separator, detail);
    return;
  }
  constexpr int kBar = 24;
  std::string line = title_ + " ";
  if (share >= 0) {
    const int full = int(share * kBar);
    line += '[' + std::string(size_t(full), '#') + std::string(size_t(kBar - full), '.') + fmt::format("] {:3.0f} %", share * 100);
  }
  if (!detail.empty()) line += "  " + detail;
  line.resize(std::min(line.size(), size_t(std::max(terminal_width() - 1, 20))));
  fmt::print(stderr, "\r{}\x1b[K", line);
  std::fflush(stderr);
}

void Progress::finish() {
  if (shown_ && terminal_) {
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
  }
  shown_ = false;
  start_ = last_ = Clock::now();
  first_bytes_ = -1;
}

}  // namespace ridge
