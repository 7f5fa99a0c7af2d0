#include "cli/stop_signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace ridge {
namespace {

std::atomic<int> wake_fd{-1};
struct sigaction previous_int, previous_term;

extern "C" void on_stop(int) {
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_fd.load(), &one, sizeof one);
  errno = saved;
}

}  // namespace

StopSignals::StopSignals() {
  CHECK_EQ(wake_fd.load(), -1);
  const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE);
  if (fd < 0) fail("cannot wait for signals: {}", std::strerror(errno));
  wake_fd.store(fd);
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &previous_int);
  ::sigaction(SIGTERM, &action, &previous_term);
}

StopSignals::~StopSignals() {
  ::sigaction(SIGINT, &previous_int, nullptr);
  ::sigaction(SIGTERM, &previous_term, nullptr);
  ::close(wake_fd.exchange(-1));
}

bool StopSignals::wait(std::chrono::milliseconds at_most) {
  pollfd p{wake_fd.load(), POLLIN, 0};
  if (::poll(&p, 1, int(at_most.count())) <= 0) return false;
  uint64_t one = 0;
  return ::read(wake_fd.load(), &one, sizeof one) == sizeof one;
}

}  // namespace ridge
