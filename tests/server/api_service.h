// The APIs over a live engine without HTTP: requests go straight to the routes, and what would be sent is kept.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/json.h"
#include "engine/engine_thread.h"
#include "engine/generation_defaults.h"
#include "engine/tokenizer_of.h"
#include "server/routes.h"
#include "server/service.h"

namespace ridge {

class KeptReply : public HttpReply {
 public:
  void send(int status, std::string content_type, std::string body, Headers headers = {}) override { keep(status, std::move(content_type), std::move(body), std::move(headers), true); }
  void begin(int status, std::string content_type, std::string, Headers headers = {}) override { keep(status, std::move(content_type), "", std::move(headers), false); }
  void write(std::string piece) override {
    const std::lock_guard lock(mutex_);
    body += piece;
  }
  void end() override {
    const std::lock_guard lock(mutex_);
    complete = true;
    changed_.notify_all();
  }
  void on_gone(std::function<void()> then) override { gone_ = std::move(then); }
  bool gone() const override { return is_gone_; }
  void post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    if (!is_forgotten_) work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void note(std::string text) override { notes += text + "\n"; }

  // Does posted work on this thread until the reply is complete, or `until` says enough; false when a minute passed.
  bool run(const std::function<bool()>& until = [] { return false; }) {
    const auto end_of_time = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    std::unique_lock lock(mutex_);
    while (!complete && !until()) {
      if (work_.empty()) {
        if (changed_.wait_until(lock, end_of_time) == std::cv_status::timeout) return false;
        continue;
      }
      const auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
    return true;
  }
  void leave() {
    is_gone_ = true;
    if (gone_) gone_();
  }
  // Lets go of what still holds this reply: the work that nobody waited for.
  void forget() {
    std::deque<std::function<void()>> work;
    std::function<void()> gone;
    const std::lock_guard lock(mutex_);
    is_forgotten_ = true;
    work.swap(work_);
    gone.swap(gone_);
  }

  int status = 0;
  std::string content_type, body, notes;
  Headers headers;
  bool complete = false;

 private:
  void keep(int code, std::string type, std::string text, Headers more, bool whole) {
    const std::lock_guard lock(mutex_);
    status = code;
    content_type = std::move(type);
    body = std::move(text);
    headers = std::move(more);
    complete = whole;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::function<void()> gone_;
  std::atomic<bool> is_gone_ = false;
  bool is_forgotten_ = false;
};

// ridge-tiny, loaded once per program.
class ApiService {
 public:
  explicit ApiService(AdmissionLimits limits = {})
      : checkpoint(open_checkpoint(RIDGE_SOURCE_DIR "/models/ridge-tiny")),
        tokenizer(make_tokenizer(checkpoint)),
        chat_template(ChatFormat{checkpoint.chat_template, checkpoint.bos_token, checkpoint.eos_token}, "chat template"),
        engine(checkpoint, {.n_threads = 1, .max_seqs = 8, .prefix_cache = true}),
        grammars(*tokenizer, engine.model().n_vocab, checkpoint.eos_ids),
        thread(engine, limits) {
    ServiceOptions options{.model_names = {"tiny"}, .defaults = defaults_from(checkpoint.generation_config), .version = "0"};
    service = std::make_shared<Service>(Service{checkpoint, *tokenizer, chat_template, AnswerFormat::for_template(chat_template.source()), grammars, thread, engine, std::move(options)});
    routes.open(service);
  }
  ~ApiService() {
    routes.close();
    for (const auto& started : started_)
      if (const auto reply = started.lock()) reply->forget();
  }

  std::shared_ptr<KeptReply> start(const std::string& path, const std::string& body, const std::string& method = "POST") {
    auto reply = std::make_shared<KeptReply>();
    started_.push_back(reply);
    HttpRequest request{.method = method, .path = path, .body = body, .id = "1"};
    routes.handle(request, reply);
    return reply;
  }
  std::shared_ptr<KeptReply> ask(const std::string& path, const std::string& body, const std::string& method = "POST") {
    auto reply = start(path, body, method);
    if (!reply->run()) throw std::runtime_error("no answer within a minute");
    return reply;
  }
  Json json(const std::string& path, const Json& body) { return parse_json(ask(path, body.dump())->body, path); }
  size_t n_live() {
    return thread.between_steps([](Engine& e) { return e.live().size(); });
  }

  Checkpoint checkpoint;
  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat_template;
  Engine engine;
  GrammarCompiler grammars;
  EngineThread thread;
  std::shared_ptr<Service> service;
  Routes routes;

 private:
  std::vector<std::weak_ptr<KeptReply>> started_;
};

inline ApiService& tiny_service() {
  static ApiService service;
  return service;
}

}  // namespace ridge
