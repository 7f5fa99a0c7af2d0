// The machine's read bandwidth, the limit that every speed is compared with. Measuring takes a moment, so a chat reuses the figure of the last day;
// `ridge bench` and `ridge doctor` measure anew.
#pragma once

namespace ridge {

double recent_read_bandwidth(int n_threads);           // bytes per second; from the cache folder when less than a day old, else measured in 0.2 s

}  // namespace ridge
