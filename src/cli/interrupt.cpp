#include "cli/interrupt.h"

#include <csignal>

#include "base/check.h"

namespace ridge {
namespace {

std::atomic<bool> interrupted{false};
struct sigaction previous;
int n_catchers = 0;

extern "C" void on_interrupt(int) { interrupted.store(true); }
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

}  // namespace

CatchInterrupt::CatchInterrupt() {
  CHECK_EQ(n_catchers++, 0);
  interrupted.store(false);
  struct sigaction action {};
  action.sa_handler = on_interrupt;                    // without SA_RESTART: a read from the terminal returns
  ::sigaction(SIGINT, &action, &previous);
}

CatchInterrupt::~CatchInterrupt() {
  ::sigaction(SIGINT, &previous, nullptr);
  --n_catchers;
}

const std::atomic<bool>& CatchInterrupt::flag() { return interrupted; }
void CatchInterrupt::clear() { interrupted.store(false); }

}  // namespace ridge
