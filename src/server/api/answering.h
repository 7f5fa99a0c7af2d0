// Asks the engine for all answers of one HTTP request and gives them to a writer, which puts them into the shape of its API. The engine's thread only hands events
// over; everything else happens on the connection's thread. A client that goes away, or a stop string, cancels what still runs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "server/api/answer_stream.h"
#include "server/api/job.h"
#include "server/api/prepare.h"
#include "server/http.h"
#include "server/service.h"

namespace ridge {

struct Usage {
  int n_prompt = 0, n_cached = 0, n_generated = 0, n_reasoning = 0;
};

// One API's words. A writer serves one request; it makes text and sends nothing.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // The whole answer at once.
  virtual std::string whole(const std::vector<Answer>& answers, const Usage& usage) = 0;
  // As a stream, in this order; an empty string is not sent. `usage` counts what is known so far.
  virtual std::string stream_type() const { return "text/event-stream"; }
  virtual std::string begin(const Usage& usage) = 0;                       // before the first piece of any answer
  virtual std::string piece(const Answer& answer, const AnswerPiece& piece, const Usage& usage) = 0;
  virtual std::string finished(const Answer& answer, const Usage& usage) = 0;
  virtual std::string end(const std::vector<Answer>& answers, const Usage& usage) = 0;
  virtual std::string failed(const std::string& message) = 0;              // instead of the rest
};

// The error of an API as a body; see errors.h.
using ErrorShape = std::string (*)(int status, const std::string& message, const std::string& param, const std::string& code);

// Throws ApiError (429 when the engine has no room, 400 when a request can never run) before anything is sent.
void answer_request(std::shared_ptr<const Service> service, std::shared_ptr<HttpReply> reply, std::vector<Prepared> prompts, const Job& job, std::unique_ptr<AnswerWriter> writer,
                    ErrorShape shape);

}  // namespace ridge
