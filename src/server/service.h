// What the handlers of all APIs share once a model is loaded: its files, its words, its engine. Nothing here changes while the server runs; the engine and the
// grammar compiler take calls from any thread.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_thread.h"
#include "files/checkpoint.h"
#include "server/adapter_names.h"
#include "server/api/breaker_lists.h"
#include "text/answer_parser.h"
#include "text/chat.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace ridge {

struct ServiceOptions {
  std::vector<std::string> model_names;      // --served-model-name; answers carry the first. Never empty
  SamplingParams defaults;                   // of requests that say nothing: defaults_from(generation_config), then the flags
  Json template_variables = Json::object();  // --default-chat-template-kwargs; a request's chat_template_kwargs win
  bool split_reasoning = true;               // --reasoning-format; false: thoughts stay in the content unless a request says otherwise
  bool may_load_adapters = false;            // --allow-runtime-lora-updating
  int max_choices = 128;                     // n and best_of
  int max_logprobs = 20;                     // top_logprobs, logprobs, prompt_logprobs
  int max_requests = 1024;                   // prompts x n of one HTTP request: AdmissionLimits::max_queue
  std::string version;                       // of the program
};

struct Service {
  const Checkpoint& checkpoint;
  const Tokenizer& tokenizer;
  const ChatTemplate& chat_template;
  std::shared_ptr<const AnswerFormat> format;
  GrammarCompiler& grammars;
  EngineThread& engine;
  const Engine& facts;                       // for what never changes: max_context(), options(), model(), check()
  ServiceOptions options;
  std::chrono::system_clock::time_point started = std::chrono::system_clock::now();
  // For metrics; may be empty. Called on a connection's thread when a request of the engine has ended: "stop", "length", "tool_calls", "cancelled" or "error".
  std::function<void(const RequestTiming& timing, std::string_view finish)> on_finished = {};
  // The same for every event, and when it came: for the time between tokens.
  std::function<void(const Event& event, TimePoint came)> on_tokens = {};
  std::shared_ptr<BreakerLists> breakers = std::make_shared<BreakerLists>();
  std::shared_ptr<AdapterNames> adapters = std::make_shared<AdapterNames>();
  const std::string& name() const { return options.model_names.front(); }
};

}  // namespace ridge
