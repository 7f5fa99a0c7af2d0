#include "text/number_range.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace ridge {

namespace {

constexpr int kMostDigits = 15;
constexpr int kMoreFraction = 6;

Gbnf digit(char first, char last) { return Gbnf::chars({{static_cast<char32_t>(first), static_cast<char32_t>(last)}}); }
Gbnf any_digits(int64_t min, int64_t max) { return Gbnf::repeat(digit('0', '9'), min, max); }

// Digits of one length between low and high.
Gbnf same_length(std::string_view low, std::string_view high) {
  const size_t n = low.size();
  if (n == 0) return {};
  if (low.find_first_not_of('0') == low.npos && high.find_first_not_of('9') == high.npos) return any_digits(static_cast<int64_t>(n), static_cast<int64_t>(n));
  if (low[0] == high[0]) return Gbnf::sequence({Gbnf::literal(low.substr(0, 1)), same_length(low.substr(1), high.substr(1))});
  const std::string zeros(n - 1, '0'), nines(n - 1, '9');
  std::vector<Gbnf> out;
  char first = low[0], last = high[0];
  if (low.substr(1) != zeros) {
    out.push_back(Gbnf::sequence({Gbnf::literal(low.substr(0, 1)), same_length(low.substr(1), nines)}));
    ++first;
  }
  const bool whole_top = high.substr(1) == nines;
  if (!whole_top) --last;
  if (first <= last) out.push_back(Gbnf::sequence({digit(first, last), any_digits(static_cast<int64_t>(n) - 1, static_cast<int64_t>(n) - 1)}));
  if (!whole_top) out.push_back(Gbnf::sequence({Gbnf::literal(high.substr(0, 1)), same_length(zeros, high.substr(1))}));
  return Gbnf::either(std::move(out));
}

bool less(std::string_view a, std::string_view b) { return a.size() != b.size() ? a.size() < b.size() : a < b; }

std::string successor(std::string digits) {
  for (size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '9') return ++digits[i], digits;
    digits[i] = '0';
  }
  return "1" + digits;
}

std::string predecessor(std::string digits) {       // of more than "0"
  for (size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '0') { --digits[i]; break; }
    digits[i] = '9';
  }
  const size_t start = std::min(digits.find_first_not_of('0'), digits.size() - 1);
  return digits.substr(start);
}

// Whole numbers of [low, high], digits without sign.
Gbnf naturals(const std::string& low, const std::string& high) {
  if (less(high, low)) return Gbnf::never();
  std::vector<Gbnf> out;
  size_t whole = 0;                          // how many lengths in a row have all their numbers
  const auto give_whole = [&](size_t n) {
    if (whole > 0) out.push_back(Gbnf::sequence({digit('1', '9'), any_digits(static_cast<int64_t>(n - whole) - 1, static_cast<int64_t>(n) - 2)}));
    whole = 0;
  };
  for (size_t n = low.size(); n <= high.size(); ++n) {
    const std::string least = "1" + std::string(n - 1, '0'), most = std::string(n, '9');
    const std::string first = n == low.size() ? low : least, last = n == high.size() ? high : most;
    if (first == least && last == most) {
      ++whole;
      continue;
    }
    give_whole(n);
    out.push_back(same_length(first, last));
  }
  give_whole(high.size() + 1);
  return Gbnf::either(std::move(out));
}

// A bound without its sign, split at the point.
struct Magnitude {
  std::string whole = "0", fraction;
  bool exclusive = false;
  bool zero() const { return whole == "0" && fraction.empty(); }
};

Magnitude magnitude(const NumberBound& bound) {
  Magnitude out;
  std::string_view text = bound.digits;
  if (text.starts_with('-')) text.remove_prefix(1);
  const size_t point = text.find('.');
  out.whole = text.substr(0, point);
  if (point != text.npos) out.fraction = text.substr(point + 1);
  while (!out.fraction.empty() && out.fraction.back() == '0') out.fraction.pop_back();
  const size_t start = out.whole.find_first_not_of('0');
  out.whole = start == std::string::npos ? "0" : out.whole.substr(start);
  out.exclusive = bound.exclusive;
  return out;
}

std::string nines(size_t n) { return std::string(n, '9'); }

// Digits after the point that make a fraction of at least (more than) `bound`'s.
Gbnf fraction_from(const std::string& bound, bool exclusive) {
  std::vector<Gbnf> out;
  const int64_t n = static_cast<int64_t>(bound.size()) + kMoreFraction;
  for (size_t i = 0; i < bound.size(); ++i) {
    if (bound[i] < '9') out.push_back(Gbnf::sequence({Gbnf::literal(bound.substr(0, i)), digit(static_cast<char>(bound[i] + 1), '9'), any_digits(0, n - static_cast<int64_t>(i) - 1)}));
  }
  if (exclusive) {
    out.push_back(Gbnf::sequence({Gbnf::literal(bound), Gbnf::repeat(Gbnf::literal("0"), 0, kMoreFraction - 1), digit('1', '9'), any_digits(0, 2)}));
  } else {
    out.push_back(bound.empty() ? any_digits(1, n) : Gbnf::sequence({Gbnf::literal(bound), any_digits(0, kMoreFraction)}));
  }
  return Gbnf::either(std::move(out));
}

Gbnf fraction_to(const std::string& bound, bool exclusive) {
  std::vector<Gbnf> out;
  const int64_t n = static_cast<int64_t>(bound.size()) + kMoreFraction;
  for (size_t i = 0; i < bound.size(); ++i) {
    if (bound[i] > '0') out.push_back(Gbnf::sequence({Gbnf::literal(bound.substr(0, i)), digit('0', static_cast<char>(bound[i] - 1)), any_digits(0, n - static_cast<int64_t>(i) - 1)}));
    if (i > 0) out.push_back(Gbnf::literal(bound.substr(0, i)));      // the bound cut short is less: its last digit is not 0
  }
  if (!exclusive) out.push_back(bound.empty() ? Gbnf::repeat(Gbnf::literal("0"), 1, 2) : Gbnf::sequence({Gbnf::literal(bound), Gbnf::repeat(Gbnf::literal("0"), 0, 1)}));
  return Gbnf::either(std::move(out));
}

// Fractions between two bounds of the same whole part: of each number of digits those that lie inside.
Gbnf fraction_between(const Magnitude& low, const Magnitude& high) {
  const size_t n = std::max(low.fraction.size(), high.fraction.size()) + 2;
  std::string first = low.fraction + std::string(n - low.fraction.size(), '0'), last = high.fraction + std::string(n - high.fraction.size(), '0');
  if (low.exclusive) first = successor(first);
  if (high.exclusive) {
    if (last.find_first_not_of('0') == last.npos) return Gbnf::never();
    std::string before = predecessor(last);
    last = std::string(n - before.size(), '0') + before;
  }
  if (first.size() > n || last < first) return Gbnf::never();
  std::vector<Gbnf> out;
  for (size_t k = 1; k <= n; ++k) {
    std::string from = first.substr(0, k);
    if (first.find_first_not_of('0', k) != first.npos) from = successor(from);
    if (from.size() == k && from <= last.substr(0, k)) out.push_back(same_length(from, last.substr(0, k)));
  }
  return Gbnf::either(std::move(out));
}

// Numbers of [low, high] without sign; `high` may be absent.
Gbnf decimals(const Magnitude& low, const Magnitude* high) {
  const Gbnf any_fraction = Gbnf::optional(Gbnf::sequence({Gbnf::literal("."), any_digits(1, kMoreFraction + static_cast<int64_t>(low.fraction.size()))}));
  const auto point = [](const Gbnf& fraction) { return Gbnf::sequence({Gbnf::literal("."), fraction}); };
  std::vector<Gbnf> out;
  if (high != nullptr && low.whole == high->whole) {
    const bool whole_itself = low.fraction.empty() && !low.exclusive && !(high->fraction.empty() && high->exclusive);
    return Gbnf::sequence({Gbnf::literal(low.whole), Gbnf::either({whole_itself ? Gbnf() : Gbnf::never(), point(fraction_between(low, *high))})});
  }
  if (high != nullptr && (less(high->whole, low.whole))) return Gbnf::never();
  out.push_back(Gbnf::sequence({Gbnf::literal(low.whole), Gbnf::either({low.fraction.empty() && !low.exclusive ? Gbnf() : Gbnf::never(), point(fraction_from(low.fraction, low.exclusive))})}));
  const std::string after = successor(low.whole);
  const std::string before = high != nullptr ? predecessor(high->whole) : nines(std::max<size_t>(kMostDigits, low.whole.size() + 1));
  out.push_back(Gbnf::sequence({naturals(after, before), any_fraction}));
  if (high != nullptr) {
    out.push_back(Gbnf::sequence({Gbnf::literal(high->whole), Gbnf::either({high->fraction.empty() && high->exclusive ? Gbnf::never() : Gbnf(), point(fraction_to(high->fraction, high->exclusive))})}));
  }
  return Gbnf::either(std::move(out));
}

// Calls f for the part of the range that is not negative and for the one that is, the latter with its ends turned round.
template <class F>
Gbnf by_sign(const NumberBound& low, const NumberBound& high, const F& f) {
  const Magnitude zero;
  std::vector<Gbnf> out;
  const bool low_negative = low.digits.empty() || (low.digits[0] == '-' && !magnitude(low).zero());
  const bool high_negative = !high.digits.empty() && high.digits[0] == '-' && !magnitude(high).zero();
  if (!high_negative) {
    const Magnitude from = low_negative ? zero : magnitude(low), to = magnitude(high);
    out.push_back(f(from, high.digits.empty() ? nullptr : &to));
  }
  if (low_negative) {
    Magnitude from = high_negative ? magnitude(high) : Magnitude{.exclusive = true};
    const Magnitude to = magnitude(low);
    out.push_back(Gbnf::sequence({Gbnf::literal("-"), f(from, low.digits.empty() ? nullptr : &to)}));
  }
  return Gbnf::either(std::move(out));
}

}  // namespace

Gbnf integers_between(const NumberBound& low, const NumberBound& high) {
  return by_sign(low, high, [](const Magnitude& from, const Magnitude* to) {
    const std::string first = !from.fraction.empty() || from.exclusive ? successor(from.whole) : from.whole;
    std::string last = nines(std::max<size_t>(kMostDigits, first.size() + 1));
    if (to != nullptr) {
      if (to->whole == "0" && to->fraction.empty() && to->exclusive) return Gbnf::never();
      last = to->fraction.empty() && to->exclusive ? predecessor(to->whole) : to->whole;
    }
    return naturals(first, last);
  });
}

Gbnf numbers_between(const NumberBound& low, const NumberBound& high) { return by_sign(low, high, decimals); }

std::string plain_decimal(std::string_view number, std::string_view what) {
  const size_t e = number.find_first_of("eE");
  std::string mantissa(number.substr(0, e));
  int exponent = 0;
  if (e != number.npos) {
    std::string_view text = number.substr(e + 1);
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exponent);
    if (error != std::errc() || exponent > 60 || exponent < -60) fail("{}: {} is outside of what is supported (60 digits)", what, number);
  }
  const bool negative = mantissa.starts_with('-');
  if (negative) mantissa.erase(0, 1);
  size_t point = mantissa.find('.');
  if (point == std::string::npos) point = mantissa.size(); else mantissa.erase(point, 1);
  int64_t at = static_cast<int64_t>(point) + exponent;
  if (at <= 0) mantissa.insert(0, static_cast<size_t>(1 - at), '0'), at = 1;
  if (at > static_cast<int64_t>(mantissa.size())) mantissa.append(static_cast<size_t>(at) - mantissa.size(), '0');
  std::string whole = mantissa.substr(0, static_cast<size_t>(at)), fraction = mantissa.substr(static_cast<size_t>(at));
  if (whole.size() + fraction.size() > 80) fail("{}: {} has too many digits", what, number);
  return (negative ? "-" : "") + whole + (fraction.empty() ? "" : "." + fraction);
}

}  // namespace ridge
