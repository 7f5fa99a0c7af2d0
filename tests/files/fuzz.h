// Mutations of a valid file for the fuzz tests: flipped bits, numbers replaced by extreme ones, pieces cut, doubled or moved. Seeds are fixed, so that a failure
// comes back; the time is bounded, so that it runs with every test.
#pragma once
#include <chrono>
#include <random>
#include <string>

namespace ridge {

inline std::string mutated(std::string bytes, size_t header_bytes, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : static_cast<size_t>(random() % n); };
  // Mostly within the header, where the structure is.
  const auto place = [&] { return below(below(8) == 0 ? bytes.size() : std::min(header_bytes, bytes.size())); };
  for (size_t i = 0, n = 1 + below(4); i < n && !bytes.empty(); ++i) {
    const size_t at = place();
    switch (below(7)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
      case 1: bytes[at] = static_cast<char>(random()); break;
      case 2: bytes.resize(at); break;
      case 3: bytes.erase(at, 1 + below(16)); break;
      case 4: bytes.insert(at, bytes.substr(place(), 1 + below(32))); break;
      case 5: {
        static constexpr uint64_t kExtremes[] = {0, 1, 0x7f, 0xff, 0x7fff, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff, 0x100000000, 0x4000000000000000};
        const uint64_t v = kExtremes[below(std::size(kExtremes))];
        const size_t width = size_t{1} << below(4);
        for (size_t b = 0; b < width && at + b < bytes.size(); ++b) bytes[at + b] = static_cast<char>(v >> (8 * b));
        break;
      }
      default: {
        static constexpr const char* kTokens[] = {"-1", "1e99", "null", "[", "{", "\"", "99999999999999999999", "[]", "{}", "\\u0000", "0.5", ","};
        bytes.insert(at, kTokens[below(std::size(kTokens))]);
      }
    }
  }
  return bytes;
}

// Calls `try_one(bytes)` with mutations until the time is up; returns how many there were.
template <class TryOne>
size_t fuzz(const std::string& valid, size_t header_bytes, uint64_t seed, std::chrono::milliseconds time, TryOne try_one) {
  std::mt19937_64 random(seed);
  const auto end = std::chrono::steady_clock::now() + time;
  size_t n = 0;
  for (; n < 20000 && std::chrono::steady_clock::now() < end; ++n) try_one(mutated(valid, header_bytes, random));
  return n;
}

}  // namespace ridge
