// One polite turn of a spinning loop.
#pragma once

namespace ridge::cpu {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");          // yield is a no-op on most cores; isb takes about as long as x86's pause
#endif
}

}  // namespace ridge::cpu
