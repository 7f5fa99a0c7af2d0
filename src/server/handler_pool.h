// A few threads that take work from one queue: handlers of requests run here.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ridge {

class HandlerPool {
 public:
  ~HandlerPool() { stop(); }
  void start(int n_threads);
  void submit(std::function<void()> work);
  void stop();                               // what is queued is still done

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ridge
