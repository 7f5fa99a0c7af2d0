// One I/O thread: an io_context and an inbox. The inbox is a list without locks (push by compare and swap, the thread takes all of it at once) with an eventfd that is
// written only by the push that finds it empty: a step of the engine that answers 32 connections costs it 32 pushes and one wake-up.
#pragma once
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace ridge {

class HttpIo {
 public:
  HttpIo();
  ~HttpIo();
  void start();                              // its thread runs until finish() and the last operation has ended
  void finish();                             // from any thread; the inbox takes nothing more
  void join();

  // From any thread, in order. After finish() it is dropped.
  void push(std::function<void()> work);
  bool on_this_thread() const { return std::this_thread::get_id() == thread_id_.load(std::memory_order_relaxed); }
  // Work to be done once, after everything that is in the inbox now: connections join what they write in between. At once when nothing is being taken out.
  void after_inbox(std::function<void()> work);

  boost::asio::io_context context{1};

 private:
  struct Node { Node* next; std::function<void()> work; };
  void wait_for_mail();
  void take_all();
  void discard(Node* list);
  Node* closed() { return &closed_; }

  Node closed_{nullptr, {}};                 // its address marks an inbox that takes nothing more
  std::atomic<Node*> head_{nullptr};
  int mail_fd_ = -1;                         // open until the end, so that a late push cannot write to somebody else's file
  boost::asio::posix::stream_descriptor mail_;
  uint64_t n_mail_ = 0;
  bool taking_ = false;
  std::vector<std::function<void()>> after_;
  std::atomic<std::thread::id> thread_id_{};
  std::thread thread_;
};

}  // namespace ridge
