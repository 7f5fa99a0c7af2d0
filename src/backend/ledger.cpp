#include "backend/ledger.h"

#include <fmt/format.h>

#include "base/files.h"

namespace ridge {

void Ledger::begin(const Step& step) {
  step_ = &step;
  inner_.begin(step);
}

void Ledger::run(const Op& op) {
  using clock = std::chrono::steady_clock;
  const auto start = clock::now();
  inner_.run(op);
  if (mode_ == Mode::time) {
    inner_.end();
    inner_.begin(*step_);
  }
  const std::chrono::duration<double> took = clock::now() - start;
  LedgerEntry& entry = entries_[std::string(name_of(op))];
  const Traffic t = traffic_of(op, *step_);
  entry.n_ops++;
  entry.traffic.weight_bytes += t.weight_bytes;
  entry.traffic.kv_bytes += t.kv_bytes;
  entry.traffic.activation_bytes += t.activation_bytes;
  entry.traffic.flops += t.flops;
  entry.seconds += took.count();
  if (keep_trace_)
    events_.push_back({std::string(name_of(op)), std::chrono::duration<double, std::micro>(start - origin_).count(), took.count() * 1e6, t.bytes()});
}

void Ledger::end() {
  inner_.end();
  step_ = nullptr;
  n_steps_++;
}

void Ledger::submit() {
  inner_.submit();
  step_ = nullptr;
  n_steps_++;
}

void Ledger::reset() {
  entries_.clear();
  events_.clear();
  n_steps_ = 0;
}

Traffic Ledger::total() const {
  Traffic sum;
  for (const auto& [name, entry] : entries_) {
    sum.weight_bytes += entry.traffic.weight_bytes;
    sum.kv_bytes += entry.traffic.kv_bytes;
    sum.activation_bytes += entry.traffic.activation_bytes;
    sum.flops += entry.traffic.flops;
  }
  return sum;
}

void Ledger::write_trace(const std::string& path) const {
  OutputFile file(path);
  file.write("{\"traceEvents\":[\n");
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event& e = events_[i];
    file.write(fmt::format("{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{\"bytes\":{},\"GB/s\":{:.2f}}}}}{}\n", e.name,
                           e.start_us, e.duration_us, e.bytes, e.bytes / e.duration_us / 1e3, i + 1 < events_.size() ? "," : ""));
  }
  file.write("]}\n");
  file.commit();
}

}  // namespace ridge
