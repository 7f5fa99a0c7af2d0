// What `ridge bench serve` asks: conversations (mostly of one turn) with the time at which each begins. Prompts are random words or token ids, with a shared beginning if
// wanted, or come from a file: ShareGPT's JSON, or JSON lines with prompts, messages, or lengths alone (a trace of somebody's traffic). What belongs to the
// load generator alone is in ridge::load: the server has conversations and answers too.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace ridge::load {

struct Turn {
  std::string text;
  std::vector<int32_t> ids;                            // instead of the text
  Json messages;                                       // instead of the text, for chats that come with their history; null: none
  int max_tokens = 128;
};
struct Conversation {
  double at = 0;                                       // seconds after the start, for open loops
  std::vector<Turn> turns;
};

struct WorkloadFlags {
  std::string dataset = "random";                      // random, multi-turn, sharegpt, trace
  std::string path;
  int n_prompts = 64, n_input = 512, n_output = 128, n_prefix = 0, n_turns = 4;
  bool output_given = false;                           // else a file's own lengths count
  double range_ratio = 0;                              // lengths vary by this share, up and down
  int n_vocab = 0;                                     // above 0: prompts are arrays of token ids below it
  uint64_t seed = 0;
};

std::vector<Conversation> make_workload(const WorkloadFlags& flags);

// Sets `at`: Poisson arrivals at exactly `rate` per second on the whole; burstiness below 1 makes them come in bunches, above 1 more evenly (gamma distributed gaps, as vLLM has it).
void set_arrivals(std::vector<Conversation>& all, double rate, double burstiness, uint64_t seed);

struct RequestFlags {
  std::string model, endpoint = "/v1/completions";
  bool chat = false, ignore_eos = true;
  Json extra = Json::object();                         // more fields of every request
};
// The body of a conversation's turn, after the answers to those before it.
std::string request_body(const RequestFlags& flags, const Conversation& conversation, size_t turn, const std::vector<std::string>& answers);

}  // namespace ridge::load
