// The day on which the expected outputs of templates were made: strftime_now answers with it.
#pragma once
#include <ctime>

namespace ridge {

inline std::tm day_of_the_cases() {
  std::tm day{};
  day.tm_year = 126;
  day.tm_mon = 10;
  day.tm_mday = 15;
  day.tm_hour = 12;
  day.tm_isdst = -1;
  std::mktime(&day);
  return day;
}

}  // namespace ridge
