// Flags as the command line gives them: what is not given is not set, so that the model's or the device's default holds.
#include <gtest/gtest.h>

#include "cli/model_flags.h"
#include "cli/sampling_flags.h"

namespace ridge {
namespace {

ModelFlags model_flags(const std::string& line) {
  CLI::App app;
  ModelFlags flags;
  add_model_flags(app, flags);
  app.parse(line);
  return flags;
}

TEST(ModelFlags, RunningAheadIsTheDevicesDefaultWhereNobodyAsks) {
  EXPECT_FALSE(engine_options(model_flags("")).run_ahead.has_value());
  EXPECT_FALSE(engine_options(model_flags("--device cuda -c 512")).run_ahead.has_value());
  EXPECT_EQ(engine_options(model_flags("--async-scheduling")).run_ahead, true);
  EXPECT_EQ(engine_options(model_flags("--no-async-scheduling")).run_ahead, false);
}

TEST(SamplingFlags, WhatIsNotGivenIsNotSet) {
  CLI::App app;
  SamplingFlags f;
  add_sampling_flags(app, f);
  app.parse("--top-k 7");
  EXPECT_EQ(f.top_k, 7);
  for (const auto& value : {f.temperature, f.top_p, f.min_p, f.typical_p, f.repeat_penalty, f.presence_penalty, f.frequency_penalty, f.top_n_sigma, f.xtc_probability, f.xtc_threshold, f.dynatemp_range,
                            f.dynatemp_exponent, f.mirostat_tau, f.mirostat_eta, f.dry_multiplier, f.dry_base})
    EXPECT_FALSE(value.has_value());
  for (const auto& value : {f.n_predict, f.repeat_last_n, f.mirostat, f.dry_allowed_length, f.dry_penalty_last_n}) EXPECT_FALSE(value.has_value());
  EXPECT_FALSE(f.seed.has_value());
}

}  // namespace
}  // namespace ridge
