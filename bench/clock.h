// The clock of the measurements on the CPU, and the bandwidth one thread reads with by that clock.
#pragma once
#include <ctime>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ridge {

// cpu_time: on a busy machine the time that the program ran counts, which only means something for one thread.
struct BenchClock {
  bool cpu_time = false;

  double seconds() const {
    timespec t{};
    clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  }

  double read_bandwidth() const {
    std::vector<uint64_t> buffer(size_t{32} << 20, 1);
    double best = 0;
    for (int r = 0; r < 8; ++r) {
      const double begin = seconds();
      uint64_t sums[8] = {};
      for (size_t i = 0; i < buffer.size(); i += 8)
        for (size_t j = 0; j < 8; ++j) sums[j] += buffer[i + j];
      asm volatile("" : : "r"(sums) : "memory");
      best = std::max(best, double(buffer.size() * 8) / (seconds() - begin));
    }
    return best;
  }
};

}  // namespace ridge
