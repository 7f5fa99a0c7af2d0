#include "cli/bench_serve_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ridge::load {
namespace {

constexpr double kWidth = 720, kHeight = 420, kLeft = 64, kRight = 24, kTop = 64, kBottom = 56;

struct Point { double load, done, good; };

std::string escaped_xml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out;
}

constexpr const char* kStyle = R"(<style>
  svg { --paper: #fbfaf7; --ink: #23261f; --soft: #6a6e65; --line: #e5e2d9; --good: #2f6b5b; --done: #b98a3c; font: 13px system-ui, sans-serif; }
  @media (prefers-color-scheme: dark) { svg { --paper: #16191a; --ink: #e3e2dc; --soft: #979d97; --line: #2b3132; --good: #86bfab; --done: #d1a862; } }
  .paper { fill: var(--paper); } text { fill: var(--soft); } .title { fill: var(--ink); font-size: 16px; font-weight: 600; }
  .grid { stroke: var(--line); } .line { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
  .good { stroke: var(--good); } .done { stroke: var(--done); } .asked { stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 4 5; }
  .dot-good { fill: var(--good); } .dot-done { fill: var(--done); } .area { fill: var(--good); opacity: .1; }
</style>
)";

}  // namespace

std::vector<double> axis_ticks(double most, int n) {
  if (!(most > 0) || !std::isfinite(most)) most = 1;
  const double raw = most / std::max(1, n), power = std::pow(10, std::floor(std::log10(raw)));
  const double step = power * (raw <= power ? 1 : raw <= 2 * power ? 2 : raw <= 5 * power ? 5 : 10);
  std::vector<double> ticks;
  for (int i = 0; ticks.empty() || ticks.back() < most * (1 - 1e-9); ++i) ticks.push_back(i * step);
  return ticks;
}

std::string goodput_svg(const std::vector<LoadPoint>& all, const Targets& targets, const std::string& title) {
  const bool open = std::any_of(all.begin(), all.end(), [](const LoadPoint& p) { return p.rate > 0; });
  std::vector<Point> points;
  for (const LoadPoint& p : all) {
    const Figures f = figures_of(p, targets);
    const double load = open ? (std::isfinite(p.rate) ? p.rate : f.per_second(f.n_done + f.n_failed)) : p.concurrency;
    points.push_back({load, f.per_second(f.n_done), f.per_second(f.n_good)});
  }
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.load < b.load; });
  double most_x = 0, most_y = 0;
  for (const Point& p : points) most_x = std::max(most_x, p.load), most_y = std::max(most_y, p.done);
  if (open) most_y = std::min(std::max(most_x, most_y), 1.5 * most_y);      // what was asked beyond that is not worth the paper
  const auto ticks_x = axis_ticks(most_x, 8), ticks_y = axis_ticks(most_y, 6);
  const auto x = [&](double v) { return kLeft + (kWidth - kLeft - kRight) * v / ticks_x.back(); };
  const auto y = [&](double v) { return kHeight - kBottom - (kHeight - kTop - kBottom) * v / ticks_y.back(); };

  std::string svg = fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img">)"
                                "\n{}<rect class=\"paper\" width=\"100%\" height=\"100%\" rx=\"10\"/>\n<text class=\"title\" x=\"{}\" y=\"30\">{}</text>\n",
                                kWidth, kHeight, kStyle, kLeft, escaped_xml(title));
  for (const double t : ticks_y)
    svg += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n", kLeft, y(t), kWidth - kRight, kLeft - 10, y(t) + 4, t);
  for (const double t : ticks_x) svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n", x(t), kHeight - kBottom + 20, t);
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", (kLeft + kWidth - kRight) / 2, kHeight - 12, open ? "requests per second asked" : "requests at once");

  const auto path = [&](double Point::*of) {
    std::string d;
    for (const Point& p : points) d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x(p.load), y(p.*of));
    return d;
  };
  const double asked = std::min(ticks_x.back(), ticks_y.back());
  if (open) svg += fmt::format("<path class=\"line asked\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", x(0), y(0), x(asked), y(asked));
  if (!points.empty()) svg += fmt::format("<path class=\"area\" d=\"{}L{:.1f} {:.1f}L{:.1f} {:.1f}Z\"/>\n", path(&Point::good), x(points.back().load), y(0), x(points.front().load), y(0));
  svg += fmt::format("<path class=\"line done\" d=\"{}\"/>\n<path class=\"line good\" d=\"{}\"/>\n", path(&Point::done), path(&Point::good));
  for (const Point& p : points)
    svg += fmt::format("<circle class=\"dot-done\" cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"3\"/><circle class=\"dot-good\" cx=\"{0:.1f}\" cy=\"{2:.1f}\" r=\"4\"/>\n", x(p.load), y(p.done), y(p.good));

  std::string within;
  for (const auto& [name, value] : {std::pair{"TTFT", targets.ttft_ms}, {"TPOT", targets.tpot_ms}, {"E2EL", targets.e2el_ms}})
    if (value > 0) within += fmt::format("{}{} {:g} ms", within.empty() ? "" : ", ", name, value);
  double at = kLeft;
  const auto legend = [&](const char* kind, const std::string& text) {
    svg += fmt::format("<path class=\"line {}\" d=\"M{:.0f} 48h18\"/><text x=\"{:.0f}\" y=\"52\">{}</text>\n", kind, at, at + 25, escaped_xml(text));
    at += 45 + 7.0 * double(text.size());
  };
  legend("good", within.empty() ? "good (no target)" : "good: within " + within);
  legend("done", "done");
  if (open) legend("asked", "asked");
  return svg + "</svg>\n";
}

}  // namespace ridge::load
