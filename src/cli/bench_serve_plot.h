// Goodput over load as an SVG file: one line for what was asked, one for what was done, one for what was done within the targets. No library; follows light and dark.
#pragma once
#include <string>
#include <vector>

#include "cli/bench_serve_report.h"

namespace ridge::load {

// Round numbers of one step (1, 2 or 5 times a power of ten) from 0 to at least `most`, about `n` of them.
std::vector<double> axis_ticks(double most, int n);
std::string goodput_svg(const std::vector<LoadPoint>& points, const Targets& targets, const std::string& title);

}  // namespace ridge::load
