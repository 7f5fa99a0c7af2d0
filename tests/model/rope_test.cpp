// Rope variants: frequencies against values that Hugging Face's formulas give (computed in double here), and the classes of those that follow the length.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "model/rope.h"

namespace ridge {
namespace {

struct Angles {
  std::vector<float> frequencies;
  float factor;
};

Angles angles_of(const Rope& rope, int rope_class = 0) {
  Angles a{std::vector<float>(static_cast<size_t>(rope.n_freqs())), 0};
  a.factor = rope.frequencies(a.frequencies.data(), rope_class);
  return a;
}

double plain(double theta, int i, int n_rot) { return std::pow(theta, -2.0 * i / n_rot); }

void expect_near(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i] / expected[i], 1.0, 2e-6) << "frequency " << i;
}

std::string rope_message(const Json& parameters, RopeOptions options = {.n_rot = 16, .max_context = 512}) {
  try {
    make_rope(parameters, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Rope, DefaultFrequenciesArePowersOfTheta) {
  const auto rope = make_rope({{"rope_type", "default"}, {"rope_theta", 10000.0}}, {.n_rot = 64, .max_context = 512});
  std::vector<double> expected;
  for (int i = 0; i < 32; i++) expected.push_back(plain(1e4, i, 64));
  expect_near(angles_of(*rope).frequencies, expected);
  EXPECT_EQ(angles_of(*rope).factor, 1.0f);
  EXPECT_EQ(rope->class_of(1 << 20), 0);
}

TEST(Rope, LinearDividesEveryFrequency) {
  const auto rope = make_rope({{"rope_type", "linear"}, {"rope_theta", 10000.0}, {"factor", 4.0}}, {.n_rot = 16, .max_context = 512});
  std::vector<double> expected;
  for (int i = 0; i < 8; i++) expected.push_back(plain(1e4, i, 16) / 4);
  expect_near(angles_of(*rope).frequencies, expected);
}

TEST(Rope, DynamicClassesDoubleAndEachUsesTheAnglesOfItsLongestLength) {
  const Json parameters = {{"rope_type", "dynamic"}, {"rope_theta", 10000.0}, {"factor", 4.0}};
  const auto by_class = make_rope(parameters, {.n_rot = 16, .max_context = 64}), exact = make_rope(parameters, {.n_rot = 16, .max_context = 64, .dynamic_exact = true});
  EXPECT_EQ(by_class->class_of(1), 0);
  EXPECT_EQ(by_class->class_of(64), 0);
  EXPECT_EQ(by_class->class_of(65), 1);
  EXPECT_EQ(by_class->class_of(128), 1);
  EXPECT_EQ(by_class->class_of(129), 2);
  EXPECT_EQ(by_class->class_of(64 * 1024), 10);
  EXPECT_LE(by_class->class_of(2147483647), 31);
  EXPECT_EQ(exact->class_of(64), 0);
  EXPECT_EQ(exact->class_of(65), 65);
  EXPECT_EQ(angles_of(*by_class, 1).frequencies, angles_of(*exact, 128).frequencies);

  const double theta = 1e4 * std::pow(4.0 * 100 / 64 - 3.0, 16.0 / 14.0);
  std::vector<double> expected;
  for (int i = 0; i < 8; i++) expected.push_back(plain(theta, i, 16));
  expect_near(angles_of(*exact, 100).frequencies, expected);
  expected.clear();
  for (int i = 0; i < 8; i++) expected.push_back(plain(1e4, i, 16));
  expect_near(angles_of(*exact, 0).frequencies, expected);
}

TEST(Rope, YarnKeepsFastFrequenciesAndInterpolatesSlowOnes) {
  const auto rope = make_rope({{"rope_type", "yarn"}, {"rope_theta", 10000.0}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}}, {.n_rot = 128, .max_context = 16384});
  const Angles a = angles_of(*rope);
  EXPECT_NEAR(a.factor, 0.1 * std::log(4.0) + 1.0, 1e-6);
  const auto turns = [](double n) { return 128 * std::log(4096 / (n * 2 * std::numbers::pi)) / (2 * std::log(10000.0)); };
  const double low = std::floor(turns(32)), high = std::ceil(turns(1));
  std::vector<double> expected;
  for (int i = 0; i < 64; i++) {
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0), f = plain(1e4, i, 128);
    expected.push_back(f / 4 * ramp + f * (1 - ramp));
  }
  expect_near(a.frequencies, expected);
  EXPECT_GT(low, 5);
  EXPECT_LT(high, 60);
}

TEST(Rope, YarnReadsItsOptionalParameters) {
  const Json base = {{"rope_type", "yarn"}, {"rope_theta", 10000.0}, {"factor", 40.0}, {"original_max_position_embeddings", 4096}};
  const auto make = [&](const Json& more) {
    Json parameters = base;
    for (const auto& [key, value] : more.items()) parameters[key] = value;
    return angles_of(*make_rope(parameters, {.n_rot = 64, .max_context = 163840}));
  };
  EXPECT_NEAR(make({{"mscale", 1.0}, {"mscale_all_dim", 0.5}}).factor, (0.1 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1), 1e-6);
  EXPECT_NEAR(make({{"mscale", 1.0}, {"mscale_all_dim", 1.0}}).factor, 1.0, 1e-6);
  EXPECT_EQ(make({{"attention_factor", 1.5}}).factor, 1.5f);
  EXPECT_NE(make({{"truncate", false}}).frequencies, make(Json::object()).frequencies);
  EXPECT_NE(make({{"beta_fast", 16}}).frequencies, make(Json::object()).frequencies);
  EXPECT_NE(make({{"beta_slow", 4}}).frequencies, make(Json::object()).frequencies);
  EXPECT_EQ(make({{"beta_fast", 32}, {"beta_slow", 1}}).frequencies, make(Json::object()).frequencies);
}

TEST(Rope, Llama3KeepsShortWavelengthsAndDividesLongOnes) {
  const auto rope = make_rope({{"rope_type", "llama3"}, {"rope_theta", 500000.0}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0},
                               {"original_max_position_embeddings", 8192}}, {.n_rot = 128, .max_context = 131072});
  std::vector<double> expected;
  int n_smooth = 0;
  for (int i = 0; i < 64; i++) {
    const double f = plain(5e5, i, 128), n_turns = 8192 * f / (2 * std::numbers::pi), smooth = std::clamp((n_turns - 1) / 3, 0.0, 1.0);
    n_smooth += smooth > 0 && smooth < 1;
    expected.push_back((1 - smooth) * f / 8 + smooth * f);
  }
  EXPECT_GT(n_smooth, 2);
  expect_near(angles_of(*rope).frequencies, expected);
}

TEST(Rope, LongropeChangesItsListPastTheTrainedLength) {
  const Json parameters = {{"rope_type", "longrope"}, {"rope_theta", 10000.0}, {"original_max_position_embeddings", 64}, {"short_factor", {1.0, 1.5, 2.0, 2.5}},
                           {"long_factor", {1.0, 3.0, 5.0, 7.0}}};
  const auto rope = make_rope(parameters, {.n_rot = 8, .max_context = 256});
  EXPECT_EQ(rope->class_of(64), 0);
  EXPECT_EQ(rope->class_of(65), 1);
  for (int c = 0; c < 2; c++) {
    std::vector<double> expected;
    for (int i = 0; i < 4; i++) expected.push_back(plain(1e4, i, 8) / (1 + i * (c == 0 ? 0.5 : 2.0)));
    expect_near(angles_of(*rope, c).frequencies, expected);
    EXPECT_NEAR(angles_of(*rope, c).factor, std::sqrt(1 + std::log(4.0) / std::log(64.0)), 1e-6);
  }
}

TEST(Rope, BadParametersAreRefusedByName) {
  EXPECT_NE(rope_message({{"rope_type", "spiral"}, {"rope_theta", 1e4}}).find("\"spiral\""), std::string::npos);
  EXPECT_NE(rope_message({{"rope_type", "spiral"}, {"rope_theta", 1e4}}).find("longrope"), std::string::npos);
  EXPECT_NE(rope_message({{"rope_type", "linear"}, {"rope_theta", 1e4}}).find("\"factor\" is missing"), std::string::npos);
  EXPECT_NE(rope_message({{"rope_type", "linear"}, {"rope_theta", 1e4}, {"factor", -2}}).find("-2"), std::string::npos);
  EXPECT_NE(rope_message({{"rope_type", "default"}, {"rope_theta", "many"}}).find("\"many\""), std::string::npos);
  EXPECT_NE(rope_message({{"rope_type", "llama3"}, {"rope_theta", 1e4}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}).find("high_freq_factor"), std::string::npos);
  EXPECT_NE(rope_message({{"rope_type", "longrope"}, {"rope_theta", 1e4}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}}).find("2 entries where 8"), std::string::npos);
  EXPECT_NE(rope_message({{"rope_type", "default"}, {"rope_theta", 1e4}}, {.n_rot = 7, .max_context = 64}).find("7 rotated dimensions"), std::string::npos);
}

}  // namespace
}  // namespace ridge
