#include "engine/generate.h"

#include <unordered_map>

#include "base/check.h"
#include "engine/stop_strings.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double>(b - a).count(); }

// One answer in the making.
struct Answer {
  Detokenizer detokenizer;
  StopStrings stops;
  Clock::time_point submitted, first, last;
  bool ended = false;                        // by a stop string: the engine's last event is only awaited
  Generation result;
};

}  // namespace

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return "none";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::context: return "context";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::error: return "error";
  }
  return "none";
}

Generation Generator::run(Request request, const GenerateOptions& options) {
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  return std::move(run_all(std::move(requests), options).front());
}

std::vector<Generation> Generator::run_all(std::vector<Request> requests, const GenerateOptions& options) {
  std::vector<Answer> answers;
  std::unordered_map<uint64_t, size_t> index_of;
  const auto show = [&](size_t index, std::string piece) {
    if (piece.empty()) return;
    answers[index].result.text += piece;
    if (options.on_text) options.on_text(index, piece);
  };
  const auto cancel_all = [&] {
    for (const auto& [id, index] : index_of) engine_.cancel(id);
  };
  // Whatever is thrown (a request that can never run, a callback), the engine is left without our requests.
  struct OnExit {
    Engine& engine;
    const std::unordered_map<uint64_t, size_t>& left;
    ~OnExit() {
      for (const auto& [id, index] : left) engine.cancel(id);
      if (!left.empty()) engine.discard_events();
    }
  } on_exit{engine_, index_of};

  for (Request& request : requests) {
    Answer& answer = answers.emplace_back(Answer{Detokenizer(tokenizer_, options.skip_special_tokens), StopStrings(request.params.stop)});
    if (!request.params.seed) request.params.seed = random_seed();
    answer.result.seed = *request.params.seed;
    answer.result.n_prompt = int(request.prompt.size());
    answer.submitted = Clock::now();
    index_of[engine_.submit(std::move(request))] = answers.size() - 1;
  }

  bool cancelled = false;
  while (!index_of.empty()) {
    if (!cancelled && options.interrupted && options.interrupted->load()) {
      cancelled = true;
      cancel_all();
    }
    for (Event& event : engine_.step()) {
      const auto found = index_of.find(event.id);
      if (found == index_of.end()) continue;
      const size_t index = found->second;
      Answer& answer = answers[index];
      Generation& result = answer.result;
      for (size_t i = 0; i < event.sampled.size() && !answer.ended; ++i) {
        answer.last = Clock::now();
        if (result.tokens.empty()) answer.first = answer.last;
        const bool is_end = event.stop_token >= 0 && i + 1 == event.sampled.size();
        result.tokens.push_back(std::move(event.sampled[i]));
        if (!is_end) show(index, answer.stops.push(answer.detokenizer.push(result.tokens.back().token)));
        if (answer.stops.stopped()) answer.ended = true;
      }
      if (event.finish == FinishReason::none) {
        if (answer.ended) engine_.cancel(event.id);
        continue;
      }
      if (!answer.ended) {
        show(index, answer.stops.push(answer.detokenizer.flush()));
        if (!answer.stops.stopped()) show(index, answer.stops.flush());
      }
      result.finish = answer.stops.stopped() ? FinishReason::stop : event.finish;
      result.stop = answer.stops.matched();
      result.error = std::move(event.error);
      if (!result.tokens.empty()) {
        result.seconds_to_first_token = seconds_between(answer.submitted, answer.first);
        result.seconds_decoding = seconds_between(answer.first, answer.last);
      }
      index_of.erase(found);
    }
  }

  std::vector<Generation> results;
  for (Answer& answer : answers) results.push_back(std::move(answer.result));
  return results;
}

}  // namespace ridge
