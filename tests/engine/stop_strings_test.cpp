#include "engine/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace ridge {
namespace {

TEST(StopStrings, AnyCuttingIntoPiecesShowsExactlyTheTextBeforeTheFirstStop) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    // A small alphabet, so that false starts and overlaps are common.
    std::string text;
    for (int i = 0; i < 40; ++i) text += char('a' + random() % 3);
    std::vector<std::string> stops;
    for (int i = 0; i < int(random() % 3); ++i) {
      std::string stop;
      for (int k = 0; k < 2 + int(random() % 5); ++k) stop += char('a' + random() % 3);
      stops.push_back(stop);
    }
    StopStrings filter(stops);
    std::string shown;
    size_t at = 0, n_pushed = 0;
    while (at < text.size() && !filter.stopped()) {
      const size_t n = 1 + random() % 6;
      shown += filter.push(text.substr(at, n));
      at = std::min(text.size(), at + n);
      n_pushed = at;
      // What is held back is never longer than the longest stop string less one.
      ASSERT_TRUE(filter.stopped() || n_pushed - shown.size() < 7);
    }
    if (!filter.stopped()) shown += filter.flush();
    // The reference sees what was pushed up to the piece that stopped it: a stop that a longer one began before may only complete later.
    size_t first = std::string::npos;
    for (const std::string& stop : stops) first = std::min(first, text.substr(0, n_pushed).find(stop));
    EXPECT_EQ(shown, first == std::string::npos ? text : text.substr(0, first));
    EXPECT_EQ(filter.stopped(), first != std::string::npos);
  }
}

TEST(StopStrings, TextThatCannotStopIsShownAtOnce) {
  StopStrings filter({"</s>", "User:"});
  EXPECT_EQ(filter.push("Hello <"), "Hello ");
  EXPECT_EQ(filter.push("b> U"), "<b> ");
  EXPECT_EQ(filter.push("se"), "");
  EXPECT_EQ(filter.push("r: no"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.matched(), "User:");
  EXPECT_EQ(filter.push("more"), "");
}

}  // namespace
}  // namespace ridge
