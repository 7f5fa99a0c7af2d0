// What a spinning loop does in a turn: a polite pause, and asking for memory that will be wanted soon.
#pragma once

namespace ridge::cpu {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");          // yield is a no-op on most cores; isb takes about as long as x86's pause
#endif
}

// Into the second-level cache. Nothing on aarch64, where the hardware's own streams do better (simd/dot.h).
[[gnu::always_inline]] inline void prefetch_idle([[maybe_unused]] const void* p) {
#if defined(__x86_64__)
  __builtin_prefetch(p, 0, 2);
#endif
}

}  // namespace ridge::cpu
