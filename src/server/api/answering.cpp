#include "server/api/answering.h"

#include <algorithm>

#include "base/log.h"
#include "server/api/fields.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(TimePoint from, TimePoint to) { return std::chrono::duration<double, std::milli>(to - from).count(); }

class Answering : public std::enable_shared_from_this<Answering> {
 public:
  Answering(std::shared_ptr<const Service> service, std::shared_ptr<HttpReply> reply, const Job& job, std::unique_ptr<AnswerWriter> writer, ErrorShape shape)
      : service_(std::move(service)), reply_(std::move(reply)), writer_(std::move(writer)), shape_(shape), stream_(job.stream), n_(job.n), best_of_(job.best_of) {}

  void start(std::vector<Prepared>& prompts, const Job& job);

 private:
  void on_event(size_t index, Event&& event);
  void on_finished(const AnswerStream& stream);
  void conclude();
  void fail_now(const std::string& message);
  void cancel_all() const {
    for (const uint64_t id : ids_) service_->engine.cancel(id);
  }
  void send(std::string piece) {
    if (!piece.empty()) reply_->write(std::move(piece));
  }
  std::vector<Answer> chosen();

  std::shared_ptr<const Service> service_;
  std::shared_ptr<HttpReply> reply_;
  std::unique_ptr<AnswerWriter> writer_;
  ErrorShape shape_;
  bool stream_, begun_ = false, over_ = false;
  int n_, best_of_;
  std::vector<AnswerStream> streams_;
  std::vector<uint64_t> ids_;
  size_t n_ended_ = 0;
  Usage usage_;
};

void Answering::start(std::vector<Prepared>& prompts, const Job& job) {
  const size_t n_wanted = prompts.size() * size_t(best_of_);
  if (n_wanted > size_t(service_->options.max_requests))
    throw ApiError(400, fmt::format("the request asks for {} answers at once; at most {} are taken: ask for fewer prompts or a smaller n", n_wanted, service_->options.max_requests));
  std::vector<Request> requests;
  for (Prepared& prompt : prompts) {
    usage_.n_prompt += int(prompt.request.prompt.size());
    for (int i = 0; i < best_of_; ++i) {
      Request request = prompt.request;
      if (request.params.seed) *request.params.seed += uint64_t(i);
      if (best_of_ > n_) request.params.n_logprobs = std::max(0, request.params.n_logprobs);      // the likeliest are chosen
      if (i > 0 && !stream_) request.n_prompt_logprobs = -1;                                      // those of the first are theirs
      if (prompt.make_filter) request.filter = prompt.make_filter();
      auto parser = prompt.make_parser ? prompt.make_parser() : nullptr;
      const bool skip_special = job.skip_special_tokens && !prompt.writes_specials;
      AnswerStream& stream = streams_.emplace_back(service_->tokenizer, std::move(parser),
                                                   AnswerStreamOptions{.stop = request.params.stop, .skip_special_tokens = skip_special, .include_stop = job.include_stop});
      stream.answer().index = int(streams_.size()) - 1;
      stream.answer().prompt = int(&prompt - prompts.data());
      requests.push_back(std::move(request));
    }
  }
  try {
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto ticket = service_->engine.submit(std::move(requests[i]), [self = shared_from_this(), i](Event&& event) {
        self->reply_->post([self, i, event = std::move(event)]() mutable { self->on_event(i, std::move(event)); });
      });
      if (ticket.busy) {
        ApiError busy(429, ticket.busy->why, "", "rate_limit_exceeded");
        busy.retry_after_seconds = ticket.busy->retry_after_seconds;
        throw busy;
      }
      ids_.push_back(ticket.id);
    }
  } catch (...) {
    over_ = true;                            // the handler answers with what was thrown
    cancel_all();
    if (const std::string fault = service_->engine.fault(); !fault.empty()) throw ApiError(500, "the engine has failed: " + fault + "; the server must be restarted", "", "engine_error");
    throw;
  }
  if (stream_) {
    const bool sse = writer_->stream_type() == "text/event-stream";
    HttpReply::Headers headers;
    if (sse) headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    reply_->begin(200, writer_->stream_type(), sse ? ": still here\n\n" : "", std::move(headers));
  }
  reply_->on_gone([weak = weak_from_this(), service = service_, ids = ids_] {      // the reply outlives us, not the other way round
    if (const auto self = weak.lock()) self->over_ = true;
    for (const uint64_t id : ids) service->engine.cancel(id);
  });
}

void Answering::on_finished(const AnswerStream& stream) {
  const Answer& answer = stream.answer();
  if (service_->on_finished) service_->on_finished(answer.timing, answer.finish);
  const RequestTiming& t = answer.timing;
  reply_->note(fmt::format("prompt={} cached={} generated={} finish={} queued_ms={:.1f} ttft_ms={:.1f}", t.n_prompt, t.n_cached, answer.n_generated, answer.finish,
                           t.scheduled > t.arrived ? milliseconds(t.arrived, t.scheduled) : 0.0, t.first_token > t.arrived ? milliseconds(t.arrived, t.first_token) : 0.0));
}

void Answering::on_event(size_t index, Event&& event) {
  AnswerStream& stream = streams_[index];
  if (service_->on_tokens) service_->on_tokens(event, Clock::now());
  if (stream.ended()) return;
  const bool last = event.finish != FinishReason::none;
  const int n_before = stream.answer().n_generated;
  const AnswerPiece piece = stream.push(std::move(event));
  const Answer& answer = stream.answer();
  const bool first = n_before == 0 && (answer.n_generated > 0 || last);
  if (first && index % size_t(best_of_) == 0) usage_.n_cached += answer.timing.n_cached;           // of a prompt, once
  usage_.n_generated += answer.n_generated - n_before;
  if (stream.ended()) {
    if (!last) service_->engine.cancel(ids_[index]);
    usage_.n_reasoning += answer.n_reasoning;
    n_ended_++;
    on_finished(stream);
  }
  if (over_) return;
  if (answer.finish == "error") return fail_now(answer.error);
  if (answer.finish == "cancelled") return fail_now("the server is stopping, or the request was cancelled");
  if (stream_) {
    if (!begun_) send(writer_->begin(usage_));
    begun_ = true;
    if (!piece.empty()) send(writer_->piece(answer, piece, usage_));
    if (stream.ended()) send(writer_->finished(answer, usage_));
  }
  if (n_ended_ == streams_.size()) conclude();
}

// The n likeliest of every prompt's best_of, by the mean logarithm of their tokens' probabilities.
std::vector<Answer> Answering::chosen() {
  std::vector<Answer> out;
  for (size_t first = 0; first < streams_.size(); first += size_t(best_of_)) {
    std::vector<Answer*> group;
    for (int i = 0; i < best_of_; ++i) {
      group.push_back(&streams_[first + size_t(i)].answer());
      if (i > 0) group.back()->prompt_logprobs = group.front()->prompt_logprobs;
    }
    if (best_of_ > n_)
      std::stable_sort(group.begin(), group.end(), [](const Answer* a, const Answer* b) { return a->logprob / std::max(1, a->n_generated) > b->logprob / std::max(1, b->n_generated); });
    for (int i = 0; i < n_; ++i) {
      out.push_back(std::move(*group[size_t(i)]));
      out.back().index = int(out.size()) - 1;
    }
  }
  return out;
}

void Answering::conclude() {
  over_ = true;
  const std::vector<Answer> answers = chosen();
  if (!stream_) return reply_->send(200, "application/json", writer_->whole(answers, usage_));
  send(writer_->end(answers, usage_));
  reply_->end();
}

void Answering::fail_now(const std::string& message) {
  over_ = true;
  cancel_all();
  log_warn("An answer failed: {}", message);
  if (!stream_) return reply_->send(500, "application/json", shape_(500, message, "", "engine_error"));
  send(writer_->failed(message));
  reply_->end();
}

}  // namespace

void answer_request(std::shared_ptr<const Service> service, std::shared_ptr<HttpReply> reply, std::vector<Prepared> prompts, const Job& job, std::unique_ptr<AnswerWriter> writer,
                    ErrorShape shape) {
  std::make_shared<Answering>(std::move(service), std::move(reply), job, std::move(writer), shape)->start(prompts, job);
}

}  // namespace ridge
