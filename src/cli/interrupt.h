// Ctrl-C as a flag: while a CatchInterrupt lives, SIGINT sets it instead of ending the program, so that an answer can stop and the chat go on, or a
// download leave things tidy. Only one lives at a time; the handler needs the flag to be static.
#pragma once
#include <atomic>

namespace ridge {

class CatchInterrupt {
 public:
  CatchInterrupt();
  ~CatchInterrupt();                                   // the previous behaviour is back
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

  static const std::atomic<bool>& flag();
  static bool raised() { return flag().load(); }
  static void clear();
};

}  // namespace ridge
