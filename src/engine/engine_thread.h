// An engine on a thread of its own, for callers on many threads. What callers ask arrives through a list without locks (push by compare and swap; the engine takes
// the whole list between two steps), so that nobody can hold up a step. The thread sleeps while there is nothing to do.
#pragma once
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "engine/engine.h"

namespace ridge {

struct AdmissionLimits {
  int max_queue = 1024;                      // requests that wait or run; more are refused
  int max_per_user = 0;                      // of one Request::user at a time; 0: no limit
};

// Refused for now; the same request may be taken later. Not an Error: nothing is wrong with the request.
struct Busy {
  std::string why;
  int retry_after_seconds = 1;
};

class EngineThread {
 public:
  EngineThread(Engine& engine, AdmissionLimits limits);
  ~EngineThread();                           // cancels what is left, then joins

  // Called on the engine's thread with every event of a request, the last of which has a finish reason. It must not block or throw.
  using Sink = std::function<void(Event&& event)>;
  struct Ticket { uint64_t id = 0; std::optional<Busy> busy; };
  // From any thread. Throws Error when the request can never run (checked here, on the caller's thread). A request that was refused calls no sink.
  Ticket submit(Request request, Sink sink);
  void cancel(uint64_t id);                  // from any thread; within one step. An id that has ended is ignored
  // Runs `work` between two steps and waits for it: cache flush, adapters, figures. What it throws, this throws. Not from a sink, which is on the thread awaited.
  template <class F> auto between_steps(F work) -> decltype(work(std::declval<Engine&>())) {
    using R = decltype(work(std::declval<Engine&>()));
    auto task = std::make_shared<std::packaged_task<R(Engine&)>>(std::move(work));
    auto result = task->get_future();
    post([task](Engine& engine) { (*task)(engine); });
    return result.get();
  }
  void post(std::function<void(Engine&)> work);     // the same without waiting

  int n_live() const;                        // waiting or running
  // No new requests; returns when the running ones have ended or the time is up (what is left is cancelled).
  void drain(std::chrono::milliseconds at_most);
  // Why the engine died (a device fault, a broken invariant), empty while it lives. After that every submit throws.
  std::string fault() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ridge
