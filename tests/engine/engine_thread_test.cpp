// The engine on its own thread, used from many: every request gets its events in order and exactly one last one, whatever others do at the same time.
#include "engine/engine_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "engine/exact_requests.h"
#include "engine/tiny_model.h"

namespace ridge {
namespace {

using namespace std::chrono_literals;

// What came of one request; filled by a sink, read by the test.
class Inbox {
 public:
  EngineThread::Sink sink() {
    return [this](Event&& event) {
      const std::lock_guard lock(mutex_);
      EXPECT_EQ(finish, FinishReason::none) << "an event after the last one";
      id = event.id;
      for (const Sampled& s : event.sampled) tokens.push_back(s.token);
      finish = event.finish;
      error = event.error;
      changed_.notify_all();
    };
  }
  bool wait_for_tokens(size_t n) { return wait([&] { return tokens.size() >= n; }); }
  bool wait_for_end() { return wait([&] { return finish != FinishReason::none; }); }

  uint64_t id = 0;
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::none;
  std::string error;

 private:
  template <class F> bool wait(F ready) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 60s, ready);
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

TEST(EngineThread, RequestsOfManyThreadsEndAsTheyWouldAloneWhileOthersAreCancelled) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  constexpr int kThreads = 4, kRequests = 12;
  std::vector<std::vector<int32_t>> expected(5);
  for (int shape = 0; shape < 5; ++shape) {
    engine.submit(greedy({3 + shape, 20, 21}, 3 + 2 * shape));
    while (!engine.idle())
      for (const Event& event : engine.step())
        for (const Sampled& s : event.sampled) expected[shape].push_back(s.token);
  }
  EngineThread thread(engine, {.max_queue = 1000});
  std::vector<std::thread> callers;
  std::atomic<int> n_cancelled = 0;
  for (int c = 0; c < kThreads; ++c)
    callers.emplace_back([&, c] {
      std::mt19937 random(c);
      for (int i = 0; i < kRequests; ++i) {
        const int shape = int(random() % 5);
        Inbox mine, cancelled;
        const auto other = thread.submit(greedy({40 + shape}, 200), cancelled.sink());
        const auto ticket = thread.submit(greedy({3 + shape, 20, 21}, 3 + 2 * shape), mine.sink());
        ASSERT_FALSE(ticket.busy || other.busy);
        if (random() % 2) std::this_thread::sleep_for(1ms);
        thread.cancel(other.id);
        thread.cancel(999'999);
        ASSERT_TRUE(mine.wait_for_end() && cancelled.wait_for_end());
        EXPECT_EQ(mine.id, ticket.id);
        EXPECT_EQ(mine.finish, FinishReason::length);
        EXPECT_EQ(mine.tokens, expected[shape]);
        // On a busy machine this thread may come back when all is said.
        if (cancelled.finish == FinishReason::cancelled) n_cancelled++;
        else EXPECT_TRUE(cancelled.finish == FinishReason::length && cancelled.tokens.size() == 200);
        thread.cancel(other.id);
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_GT(n_cancelled, kThreads * kRequests / 2);
  EXPECT_EQ(thread.n_live(), 0);
  EXPECT_TRUE(thread.between_steps([](Engine& e) { return e.check_integrity(), e.idle(); }));
}

TEST(EngineThread, ACancelledRequestGetsAtMostTheTokenOfTheStepUnderWay) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  EngineThread thread(engine, {});
  Inbox inbox;
  const uint64_t id = thread.submit(greedy({5, 6}, 250), inbox.sink()).id;
  ASSERT_TRUE(inbox.wait_for_tokens(3));
  // Between two steps nothing is under way: what is pushed here comes before the next step.
  const size_t n_before = thread.between_steps([&](Engine&) { return thread.cancel(id), inbox.tokens.size(); });
  ASSERT_TRUE(inbox.wait_for_end());
  EXPECT_EQ(inbox.finish, FinishReason::cancelled);
  EXPECT_LE(inbox.tokens.size(), n_before + 1);
}

TEST(EngineThread, ARequestThatCanNeverRunIsRefusedOnTheCallersThreadAndOthersAreUnaffected) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  EngineThread thread(engine, {});
  Inbox good;
  thread.submit(greedy({5, 6}, 20), good.sink());
  const auto never = [](Event&&) { ADD_FAILURE() << "a refused request has no events"; };
  EXPECT_THROW(thread.submit(greedy({}, 5), never), Error);
  EXPECT_THROW(thread.submit(greedy({TinyModel::kVocab}, 5), never), Error);
  EXPECT_THROW(thread.submit(greedy(std::vector<int32_t>(500, 4), 5), never), Error);
  ASSERT_TRUE(good.wait_for_end());
  EXPECT_EQ(good.finish, FinishReason::length);
  EXPECT_EQ(thread.n_live(), 0) << "refused requests took places";
}

TEST(EngineThread, MoreThanTheLimitsAllowIsBusyAndAPlaceIsFreeOnceItsCallerHearsOfTheEnd) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  Inbox a, b, c;                             // they outlive the thread, whose end is an event for those that still run
  EngineThread thread(engine, {.max_queue = 3, .max_per_user = 2});
  const auto of = [](const std::string& user) {
    Request request = greedy({5}, 250);
    request.user = user;
    return request;
  };
  const auto never = [](Event&&) { ADD_FAILURE() << "a refused request has no events"; };
  const auto first = thread.submit(of("ada"), a.sink());
  thread.submit(of("ada"), b.sink());
  const auto third = thread.submit(of("ada"), never);
  ASSERT_TRUE(third.busy);
  EXPECT_NE(third.busy->why.find("2 requests"), std::string::npos) << third.busy->why;
  EXPECT_GE(third.busy->retry_after_seconds, 1);
  ASSERT_FALSE(thread.submit(of("bob"), c.sink()).busy);
  EXPECT_TRUE(thread.submit(of("cyd"), never).busy) << "the queue is full";
  EXPECT_EQ(thread.n_live(), 3);
  thread.cancel(first.id);
  ASSERT_TRUE(a.wait_for_end());
  for (int i = 0; i < 300; ++i) {            // one after the other, each as soon as the last has ended; also more users than are remembered at once
    Inbox next;
    const auto ticket = thread.submit(of(i % 2 ? "ada" : "user " + std::to_string(i)), next.sink());
    ASSERT_FALSE(ticket.busy) << ticket.busy->why;
    thread.cancel(ticket.id);
    ASSERT_TRUE(next.wait_for_end());
  }
}

TEST(EngineThread, DrainLetsAnswersFinishTakesNoneAnewAndCancelsWhatOverstaysItsTime) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  {
    EngineThread thread(engine, {});
    Inbox quick;
    thread.submit(greedy({5, 6}, 20), quick.sink());
    thread.drain(60s);
    EXPECT_EQ(quick.finish, FinishReason::length);
    EXPECT_EQ(quick.tokens.size(), 20u);
    EXPECT_TRUE(thread.submit(greedy({5}, 1), [](Event&&) {}).busy);
  }
  {
    EngineThread thread(engine, {});
    Inbox slow;
    // The engine is kept busy until the time is up.
    thread.post([](Engine&) { std::this_thread::sleep_for(50ms); });
    thread.submit(greedy({5, 6}, 250), slow.sink());
    thread.drain(1ms);
    EXPECT_EQ(slow.finish, FinishReason::cancelled);
  }
  Inbox left;
  {
    EngineThread thread(engine, {});
    thread.submit(greedy({5, 6}, 250), left.sink());
    ASSERT_TRUE(left.wait_for_tokens(1));
  }
  EXPECT_EQ(left.finish, FinishReason::cancelled) << "the end of the thread is the end of its requests";
  EXPECT_TRUE(engine.idle());
}

TEST(EngineThread, AFaultEndsEveryRequestWithItsReasonAndNothingWaitsForever) {
  set_log_level(LogLevel::off);
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  EngineThread thread(engine, {});
  EXPECT_EQ(thread.fault(), "");
  Inbox a, b;
  thread.between_steps([&](Engine& e) {
    e.set_logits_sink([](uint64_t, int, std::span<const float>) { throw std::runtime_error("the device is gone"); });
    Request request = greedy({5, 6}, 250);
    request.wants_all_logits = true;
    thread.submit(std::move(request), a.sink());
    thread.submit(greedy({7}, 250), b.sink());
  });
  ASSERT_TRUE(a.wait_for_end() && b.wait_for_end());
  for (const Inbox* inbox : {&a, &b}) {
    EXPECT_EQ(inbox->finish, FinishReason::error);
    EXPECT_NE(inbox->error.find("the device is gone"), std::string::npos) << inbox->error;
  }
  EXPECT_NE(thread.fault().find("the device is gone"), std::string::npos);
  EXPECT_THROW(thread.submit(greedy({5}, 1), [](Event&&) {}), Error);
  EXPECT_EQ(thread.n_live(), 0);
  thread.cancel(1);
  EXPECT_EQ(thread.between_steps([](Engine&) { return 7; }), 7);
  thread.drain(1s);
  set_log_level(LogLevel::info);
}

TEST(EngineThread, WorkBetweenStepsReturnsItsResultOrThrowsWhatItThrew) {
  const TinyModel model;
  Engine engine(model.checkpoint(), exact());
  EngineThread thread(engine, {});
  EXPECT_EQ(thread.between_steps([](Engine& e) { return e.max_context(); }), 256);
  EXPECT_THROW(thread.between_steps([](Engine&) { fail("no such adapter"); }), Error);
  Inbox inbox;
  thread.submit(greedy({5, 6}, 20), inbox.sink());
  ASSERT_TRUE(inbox.wait_for_end());
  EXPECT_EQ(inbox.finish, FinishReason::length);
  EXPECT_EQ(thread.fault(), "");
}

}  // namespace
}  // namespace ridge
