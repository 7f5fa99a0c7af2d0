#include "server/api/answer_stream.h"

#include <fmt/format.h>

#include "sample/sampler.h"

namespace ridge {
namespace {

std::string finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return "";
    case FinishReason::stop: return "stop";
    case FinishReason::length:
    case FinishReason::context: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::error: return "error";
  }
  return "";
}

}  // namespace

std::string random_id(std::string_view prefix) { return fmt::format("{}{:016x}{:08x}", prefix, random_seed(), uint32_t(random_seed())); }

AnswerStream::AnswerStream(const Tokenizer& tokenizer, std::unique_ptr<AnswerParser> parser, AnswerStreamOptions options)
    : detokenizer_(tokenizer, options.skip_special_tokens), stops_(std::move(options.stop)), parser_(std::move(parser)), include_stop_(options.include_stop) {}

void AnswerStream::add(AnswerPiece& piece, AnswerDelta delta) {
  answer_.reasoning += delta.reasoning;
  answer_.content += delta.content;
  piece.delta.reasoning += delta.reasoning;
  piece.delta.content += delta.content;
  for (AnswerDelta::Call& call : delta.calls) {
    while (int(answer_.calls.size()) <= call.index) answer_.calls.push_back({.id = random_id("call_")});
    ToolCall& whole = answer_.calls[call.index];
    whole.name += call.name;
    whole.arguments += call.arguments;
    // Pieces of one call that came with one event are one piece.
    if (!piece.delta.calls.empty() && piece.delta.calls.back().index == call.index && call.name.empty()) piece.delta.calls.back().arguments += call.arguments;
    else piece.delta.calls.push_back(std::move(call));
  }
}

void AnswerStream::take(AnswerPiece& piece, std::string text) {
  if (text.empty()) return;
  if (parser_) add(piece, parser_->push(text));
  else add(piece, {.content = std::move(text)});
}

AnswerPiece AnswerStream::push(Event&& event) {
  AnswerPiece piece;
  if (ended()) return piece;
  answer_.timing = event.timing;
  if (!event.prompt_logprobs.empty()) answer_.prompt_logprobs = std::move(event.prompt_logprobs);
  if (!event.embedding.empty()) answer_.embedding = std::move(event.embedding);
  for (size_t i = 0; i < event.sampled.size() && !stops_.stopped(); ++i) {
    Sampled& sampled = event.sampled[i];
    answer_.n_generated++;
    answer_.logprob += sampled.logprob;
    if (event.finish == FinishReason::stop && event.stop_token >= 0 && i + 1 == event.sampled.size()) {
      answer_.stop_token = event.stop_token;
      break;
    }
    const size_t n_before = piece.delta.reasoning.size();
    take(piece, stops_.push(detokenizer_.push(sampled.token)));
    if (piece.delta.reasoning.size() > n_before) answer_.n_reasoning++;
    piece.tokens.push_back(std::move(sampled));
  }
  if (event.finish != FinishReason::none && !stops_.stopped()) {
    take(piece, stops_.push(detokenizer_.flush()));
    if (!stops_.stopped()) take(piece, stops_.flush());
  }
  if (stops_.stopped() || event.finish != FinishReason::none) {
    if (stops_.stopped() && include_stop_) take(piece, stops_.matched());
    if (parser_) add(piece, parser_->finish());
    answer_.stop = stops_.matched();
    if (answer_.timing.finished == TimePoint{}) answer_.timing.finished = std::chrono::steady_clock::now();      // by a stop string: the engine does not know yet
    answer_.error = std::move(event.error);
    answer_.finish = stops_.stopped() ? "stop" : finish_name(event.finish);
    if (answer_.finish == "stop" && !answer_.calls.empty()) answer_.finish = "tool_calls";
  }
  answer_.tokens.insert(answer_.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  return piece;
}

}  // namespace ridge
