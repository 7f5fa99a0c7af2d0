// Text out of an engine, for callers with whole requests and text: runs them to completion, streams pieces that never split a character, and ends an answer at
// its stop strings, which the engine (knowing only tokens) cannot see. `ridge run` and the tests use it; the server drives the engine itself.
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace ridge {

struct Generation {
  std::string text;                          // without the stop string or the token that ended it
  std::vector<Sampled> tokens;               // everything sampled, the ending token included; with logprobs when asked for
  FinishReason finish = FinishReason::none;
  std::string error;                         // with FinishReason::error
  std::string stop;                          // the stop string that ended it, if one did
  int n_prompt = 0;
  uint64_t seed = 0;                         // that gives the same answer again
  double seconds_to_first_token = 0;         // from submission
  double seconds_decoding = 0;               // from the first token to the last
  double prefill_tokens_per_second() const { return seconds_to_first_token > 0 ? n_prompt / seconds_to_first_token : 0; }
  double decode_tokens_per_second() const { return seconds_decoding > 0 ? double(tokens.size() - 1) / seconds_decoding : 0; }
};

struct GenerateOptions {
  std::function<void(size_t index, std::string_view piece)> on_text;    // index: of the request
  const std::atomic<bool>* interrupted = nullptr;                       // set from a signal handler: every answer ends as cancelled
  bool skip_special_tokens = true;
};

class Generator {
 public:
  // The engine must have no other user while a call runs.
  Generator(Engine& engine, const Tokenizer& tokenizer) : engine_(engine), tokenizer_(tokenizer) {}

  // Throws Error when a request can never run; an error while running is in its Generation.
  Generation run(Request request, const GenerateOptions& options = {});
  std::vector<Generation> run_all(std::vector<Request> requests, const GenerateOptions& options = {});

 private:
  Engine& engine_;
  const Tokenizer& tokenizer_;
};

std::string_view name_of(FinishReason reason);      // "stop", "length", "context", "cancelled", "error", "none"

}  // namespace ridge
