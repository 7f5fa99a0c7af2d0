// The inbox is one atomic pointer to the newest command, each of which points to the one before it. Callers push by compare and swap; the engine's thread takes all of it
// with one exchange, turns it round, and sleeps on the same pointer. Per-user counts live with the callers: the engine's thread only lets go of a request's share.
#include "engine/engine_thread.h"

#include <array>
#include <cmath>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

// A user is a shared pointer; the copies that live requests hold are the count. Locks are taken by callers alone: ending a request drops a copy.
class Users {
 public:
  using Share = std::shared_ptr<const int>;

  // Null when the user has `limit` live requests already.
  Share take(const std::string& user, int limit) {
    Shard& shard = shards_[std::hash<std::string>{}(user) % shards_.size()];
    const std::lock_guard lock(shard.mutex);
    if (shard.users.size() >= shard.prune_at) {
      std::erase_if(shard.users, [](const auto& entry) { return entry.second.use_count() == 1; });
      shard.prune_at = 2 * shard.users.size() + 64;
    }
    Share& share = shard.users.try_emplace(user, std::make_shared<const int>(0)).first->second;
    if (share.use_count() > limit) return nullptr;
    return share;
  }

 private:
  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::string, Share> users;
    size_t prune_at = 64;
  };
  std::array<Shard, 16> shards_;
};

struct Command {
  enum class Kind : uint8_t { submit, cancel, cancel_all, work, stop };
  Kind kind;
  uint64_t id = 0;
  Request request;
  EngineThread::Sink sink;
  Users::Share user;
  std::function<void(Engine&)> work;
  Command* before = nullptr;
};

std::string text_of(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of an unknown kind";
  }
}

}  // namespace

struct EngineThread::State {
  struct Live {
    uint64_t id;                             // the caller's; the engine has ids of its own
    Sink sink;
    Users::Share user;
  };

  void push(std::unique_ptr<Command> command) {
    Command* const mine = command.release();
    Command* before = inbox.load(std::memory_order_relaxed);
    do mine->before = before;
    while (!inbox.compare_exchange_weak(before, mine, std::memory_order_release, std::memory_order_relaxed));
    if (!before) inbox.notify_one();         // only a list that was empty has a sleeper; `mine` may be gone by now
  }

  // In the order they were pushed.
  std::vector<std::unique_ptr<Command>> take_all() {
    std::vector<std::unique_ptr<Command>> commands;
    for (Command* c = inbox.exchange(nullptr, std::memory_order_acquire); c; c = c->before) commands.emplace_back(c);
    std::reverse(commands.begin(), commands.end());
    return commands;
  }

  bool dead() const { return fault.load(std::memory_order_acquire) != nullptr; }

  void run() {
    while (!stopping || !live.empty()) {
      if (dead() || engine.idle()) inbox.wait(nullptr, std::memory_order_acquire);
      for (auto& command : take_all()) execute(*command);
      if (dead() || engine.idle()) continue;
      try {
        for (Event& event : engine.step()) deliver(std::move(event));
      } catch (...) {
        die(text_of(std::current_exception()));
      }
    }
  }

  void execute(Command& command) {
    switch (command.kind) {
      case Command::Kind::submit: start(command); break;
      case Command::Kind::cancel:
        if (const auto found = engine_ids.find(command.id); found != engine_ids.end()) engine.cancel(found->second);
        break;
      case Command::Kind::stop: stopping = true; [[fallthrough]];
      case Command::Kind::cancel_all:
        for (const auto& [engine_id, request] : live) engine.cancel(engine_id);
        break;
      case Command::Kind::work:
        try {
          command.work(engine);
        } catch (...) {
          log_error("What was to be done between two steps failed: {}.", text_of(std::current_exception()));
        }
        break;
    }
  }

  void start(Command& command) {
    Live request{command.id, std::move(command.sink), std::move(command.user)};
    try {
      if (dead()) fail("{}", *fault.load());
      if (stopping) fail("the engine was shut down");
      const uint64_t engine_id = engine.submit(std::move(command.request));
      engine_ids[request.id] = engine_id;
      live[engine_id] = std::move(request);
    } catch (...) {
      end(std::move(request), {.finish = FinishReason::error, .error = text_of(std::current_exception())});
    }
  }

  void deliver(Event&& event) {
    const auto found = live.find(event.id);
    if (found == live.end()) return;         // of somebody who uses the engine between steps
    if (event.finish == FinishReason::none) {
      event.id = found->second.id;
      hand_over(found->second.sink, std::move(event));
      return;
    }
    Live request = std::move(found->second);
    live.erase(found);
    engine_ids.erase(request.id);
    end(std::move(request), std::move(event));
  }

  // Its place is free before its caller hears of the end, so that a caller who asks again at once finds it.
  void end(Live request, Event&& event) {
    const auto now = Clock::now();
    const float gap = std::min(std::chrono::duration<float>(now - last_end).count(), 60.0f);
    last_end = now;
    seconds_between_ends.store(0.9f * seconds_between_ends.load(std::memory_order_relaxed) + 0.1f * gap, std::memory_order_relaxed);
    request.user.reset();
    n_live.fetch_sub(1);
    event.id = request.id;
    hand_over(request.sink, std::move(event));
  }

  static void hand_over(const Sink& sink, Event&& event) {
    try {
      sink(std::move(event));
    } catch (...) {
      log_error("Request {}: its event found no taker: {}.", event.id, text_of(std::current_exception()));
    }
  }

  void die(std::string why) {
    log_error("The engine has stopped: {}.", why);
    last_words = "the engine has stopped: " + std::move(why);
    fault.store(&last_words, std::memory_order_release);
    for (auto& [engine_id, request] : std::exchange(live, {})) end(std::move(request), {.finish = FinishReason::error, .error = last_words});
    engine_ids.clear();
  }

  Engine& engine;
  const AdmissionLimits limits;
  std::atomic<Command*> inbox = nullptr;
  std::atomic<uint64_t> next_id = 1;
  std::atomic<int> n_live = 0;
  std::atomic<bool> draining = false;
  std::atomic<float> seconds_between_ends = 0;
  std::atomic<const std::string*> fault = nullptr;      // last_words, once they are written
  Users users;
  // The engine thread's own.
  std::string last_words;
  std::unordered_map<uint64_t, Live> live;              // by the engine's id
  std::unordered_map<uint64_t, uint64_t> engine_ids;    // by the caller's id
  Clock::time_point last_end = Clock::now();
  bool stopping = false;
  std::thread thread;
};

EngineThread::EngineThread(Engine& engine, AdmissionLimits limits) : state_(new State{.engine = engine, .limits = limits}) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

EngineThread::~EngineThread() {
  state_->push(std::make_unique<Command>(Command{.kind = Command::Kind::stop}));
  state_->thread.join();
  for (auto& command : state_->take_all()) state_->execute(*command);      // what raced with the stop: nobody is left waiting
}

EngineThread::Ticket EngineThread::submit(Request request, Sink sink) {
  State& s = *state_;
  if (const std::string* const fault = s.fault.load(std::memory_order_acquire)) throw Error(*fault);
  s.engine.check(request);
  const auto busy = [&](std::string why) {
    const float gap = s.seconds_between_ends.load(std::memory_order_relaxed);
    return Ticket{.busy = Busy{std::move(why), std::clamp(int(std::ceil(gap)), 1, 60)}};
  };
  // Counted before it looks at `draining`, so that drain() either sees it or refuses it.
  if (const int n = s.n_live.fetch_add(1); n >= s.limits.max_queue || s.draining.load()) {
    s.n_live.fetch_sub(1);
    return busy(s.draining.load() ? "the server is shutting down" : fmt::format("{} requests wait or run already: try again later", s.limits.max_queue));
  }
  Users::Share user;
  if (s.limits.max_per_user > 0 && !request.user.empty()) {
    user = s.users.take(request.user, s.limits.max_per_user);
    if (!user) {
      s.n_live.fetch_sub(1);
      return busy(fmt::format("this user has {} requests under way already, the most allowed at a time: try again when one has ended", s.limits.max_per_user));
    }
  }
  const uint64_t id = s.next_id.fetch_add(1, std::memory_order_relaxed);
  s.push(std::unique_ptr<Command>(
      new Command{.kind = Command::Kind::submit, .id = id, .request = std::move(request), .sink = std::move(sink), .user = std::move(user)}));
  return {.id = id};
}

void EngineThread::cancel(uint64_t id) { state_->push(std::make_unique<Command>(Command{.kind = Command::Kind::cancel, .id = id})); }

void EngineThread::post(std::function<void(Engine&)> work) {
  state_->push(std::unique_ptr<Command>(new Command{.kind = Command::Kind::work, .work = std::move(work)}));
}

int EngineThread::n_live() const { return state_->n_live.load(); }

void EngineThread::drain(std::chrono::milliseconds at_most) {
  State& s = *state_;
  s.draining.store(true);
  // Looked at now and then rather than signalled: it happens once in the life of a server, and the engine's thread need not know.
  const auto wait_for_none = [&](Clock::time_point until) {
    while (s.n_live.load() > 0 && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  wait_for_none(Clock::now() + at_most);
  if (s.n_live.load() > 0) {
    s.push(std::make_unique<Command>(Command{.kind = Command::Kind::cancel_all}));
    wait_for_none(Clock::time_point::max());
  }
  between_steps([](Engine&) {});             // by then the last event is in its sink
}

std::string EngineThread::fault() const {
  const std::string* const fault = state_->fault.load(std::memory_order_acquire);
  return fault ? *fault : "";
}

}  // namespace ridge
