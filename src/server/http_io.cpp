#include "server/http_io.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace ridge {

HttpIo::HttpIo() : mail_(context) {
  mail_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (mail_fd_ < 0) fail("cannot make an eventfd for the server's threads: {}", std::strerror(errno));
  mail_.assign(::dup(mail_fd_));
}

HttpIo::~HttpIo() {
  finish();
  join();
  ::close(mail_fd_);
}

void HttpIo::start() {
  wait_for_mail();
  thread_ = std::thread([this] {
    thread_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    for (;;) {
      try {
        context.run();
        return;
      } catch (const std::exception& e) {
        log_error("An I/O thread of the server caught: {}", e.what());
      }
    }
  });
}

void HttpIo::finish() {
  Node* list = head_.exchange(closed(), std::memory_order_acq_rel);
  if (list != closed()) discard(list);
  boost::asio::post(context, [this] {
    boost::system::error_code ignored;
    mail_.close(ignored);
  });
}

void HttpIo::join() {
  if (thread_.joinable()) thread_.join();
}

void HttpIo::discard(Node* list) {
  while (list) delete std::exchange(list, list->next);
}

void HttpIo::push(std::function<void()> work) {
  Node* node = new Node{nullptr, std::move(work)};
  Node* head = head_.load(std::memory_order_relaxed);
  do {
    if (head == closed()) {
      delete node;
      return;
    }
    node->next = head;
  } while (!head_.compare_exchange_weak(head, node, std::memory_order_release, std::memory_order_relaxed));
  if (head) return;                          // the list had something: its wake-up is on the way. The node itself may be gone by now
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(mail_fd_, &one, sizeof one);       // fails only when 2^64 wake-ups are pending
}

void HttpIo::wait_for_mail() {
  mail_.async_read_some(boost::asio::buffer(&n_mail_, sizeof n_mail_), [this](boost::system::error_code ec, size_t) {
    if (ec) return;
    take_all();
    wait_for_mail();
  });
}

void HttpIo::take_all() {
  Node* list = head_.load(std::memory_order_relaxed);
  do {
    if (list == closed()) return;
  } while (!head_.compare_exchange_weak(list, nullptr, std::memory_order_acquire, std::memory_order_relaxed));
  Node* in_order = nullptr;
  while (list) {
    Node* next = list->next;
    list->next = std::exchange(in_order, list);
    list = next;
  }
  taking_ = true;
  while (in_order) {
    try {
      in_order->work();
    } catch (const std::exception& e) {
      log_error("Work of a connection failed: {}", e.what());
    }
    delete std::exchange(in_order, in_order->next);
  }
  taking_ = false;
  for (const auto& work : std::exchange(after_, {})) work();
}

void HttpIo::after_inbox(std::function<void()> work) {
  if (taking_) after_.push_back(std::move(work));
  else work();
}

}  // namespace ridge
