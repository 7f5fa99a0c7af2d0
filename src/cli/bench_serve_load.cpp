#include "cli/bench_serve_load.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "base/error.h"

namespace ridge::load {
namespace {

using Random = std::mt19937_64;

// Words that the vocabularies of today's models have as one token after a space.
constexpr const char* kWords[] = {"the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not", "he", "his", "but", "at", "are", "this", "have", "from", "or", "had",
                                  "an", "they", "which", "one", "you", "were", "her", "all", "she", "there", "would", "their", "we", "him", "been", "has", "when", "who", "will", "more", "no", "if", "out", "so",
                                  "said", "what", "up", "its", "about", "into", "than", "them", "can", "only", "other", "new", "some", "could", "time", "these", "two", "may", "then", "do", "first", "any",
                                  "my", "now", "such", "like", "our", "over", "man", "me", "even", "most", "made", "after", "also", "did", "many", "before", "must", "through", "back", "years", "where",
                                  "much", "your", "way", "well", "down", "should", "because", "each", "just", "those", "people", "how", "too", "little", "state", "good", "very", "make", "world", "still", "own",
                                  "see", "men", "work", "long", "get", "here", "between", "both", "life", "being", "under", "never", "day", "same", "another", "know", "while", "last", "might", "us", "great"};

size_t below(Random& random, size_t n) { return size_t(random() % n); }      // the same on every standard library, unlike its distributions

double uniform(Random& random) { return (double(random() >> 11) + 0.5) * 0x1p-53; }

struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
};

void append_random(Prompt& prompt, int n, int n_vocab, Random& random) {
  for (int i = 0; i < n; ++i) {
    if (n_vocab > 0) prompt.ids.push_back(int32_t(below(random, size_t(n_vocab))));
    else prompt.text += std::string(prompt.text.empty() ? "" : " ") + kWords[below(random, std::size(kWords))];
  }
}

int vary(int n, double ratio, Random& random) {
  return ratio <= 0 ? n : std::max(1, int(std::lround(double(n) * (1 + ratio * (2 * uniform(random) - 1)))));
}

Turn to_turn(Prompt prompt, int max_tokens) {
  Turn turn;
  turn.text = std::move(prompt.text);
  turn.ids = std::move(prompt.ids);
  turn.max_tokens = max_tokens;
  return turn;
}

std::vector<Conversation> random_workload(const WorkloadFlags& f) {
  Random random(f.seed * 0x9e3779b97f4a7c15ull + 1);
  Prompt prefix;
  append_random(prefix, f.n_prefix, f.n_vocab, random);
  const int n_turns = f.dataset == "multi-turn" ? f.n_turns : 1;
  if (n_turns > 1 && f.n_vocab > 0) fail("multi-turn prompts are text (the answers are part of them): leave out --random-vocab-size");
  std::vector<Conversation> all;
  for (int i = 0; i < f.n_prompts; ++i) {
    Conversation c;
    for (int t = 0; t < n_turns; ++t) {
      Prompt prompt = t == 0 ? prefix : Prompt{};
      append_random(prompt, vary(f.n_input, f.range_ratio, random), f.n_vocab, random);
      c.turns.push_back(to_turn(std::move(prompt), vary(f.n_output, f.range_ratio, random)));
    }
    all.push_back(std::move(c));
  }
  return all;
}

// A quarter of a token per character is near enough for how long an answer in a file was.
int tokens_of(const std::string& text) { return std::clamp(int(text.size() / 4), 4, 4096); }

std::vector<Conversation> sharegpt_workload(const WorkloadFlags& f) {
  const Json all = read_json_file(f.path);
  if (!all.is_array()) fail("{}: ShareGPT's file is an array of conversations", f.path);
  std::vector<Conversation> out;
  for (const Json& entry : all) {
    const Json* turns = entry.is_object() && entry.contains("conversations") ? &entry["conversations"] : nullptr;
    if (!turns || !turns->is_array() || turns->size() < 2) continue;
    const auto said = [&](size_t i) { return (*turns)[i].is_object() && (*turns)[i].contains("value") && (*turns)[i]["value"].is_string() ? (*turns)[i]["value"].get<std::string>() : std::string(); };
    if (said(0).size() < 16 || said(1).empty() || said(0).size() > 4 * 4096) continue;      // as vLLM leaves out the shortest and the longest
    Turn turn;
    turn.text = said(0);
    turn.max_tokens = f.output_given ? f.n_output : tokens_of(said(1));
    out.push_back({.turns = {turn}});
  }
  if (out.empty()) fail("{}: no conversation of two turns in it", f.path);
  Random random(f.seed + 17);
  for (size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[below(random, i)]);
  if (int(out.size()) > f.n_prompts) out.resize(size_t(f.n_prompts));
  return out;
}

int positive(const Json& line, std::initializer_list<const char*> names, int otherwise, const std::string& where) {
  for (const char* name : names) {
    if (!line.contains(name)) continue;
    const Json& value = line[name];
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > (1 << 24)) fail("{}: {} must be a whole number of at least 1, not {}", where, name, value.dump());
    return value.get<int>();
  }
  return otherwise;
}

// A line of a trace: {"prompt": ...} or {"messages": [...]}, or {"input_length": n, "hash_ids": [...]} with blocks of 512 tokens that equal ids share;
// how long the answer is (output_length, max_tokens), and when it came (timestamp, in milliseconds).
Conversation trace_line(const Json& line, const WorkloadFlags& f, Random& random, const std::string& where) {
  Turn turn;
  turn.max_tokens = f.output_given ? f.n_output : positive(line, {"output_length", "output_len", "max_tokens", "output_tokens"}, f.n_output, where);
  if (line.contains("messages") && line["messages"].is_array()) turn.messages = line["messages"];
  else if (line.contains("prompt") && line["prompt"].is_string()) turn.text = line["prompt"].get<std::string>();
  else if (const int n = positive(line, {"input_length", "input_len", "prompt_tokens"}, 0, where); n > 0) {
    Prompt prompt;
    constexpr int kBlock = 512;
    if (line.contains("hash_ids") && line["hash_ids"].is_array())
      for (int n_made = 0; const Json& id : line["hash_ids"]) {
        Random block(id.is_number_integer() ? id.get<uint64_t>() + f.seed : 0);
        append_random(prompt, std::clamp(n - n_made, 0, kBlock), f.n_vocab, block);
        n_made += kBlock;
      }
    if (prompt.text.empty() && prompt.ids.empty()) append_random(prompt, n, f.n_vocab, random);
    turn.text = std::move(prompt.text), turn.ids = std::move(prompt.ids);
  } else {
    fail("{}: a line needs \"prompt\", \"messages\" or \"input_length\"", where);
  }
  Conversation c{.turns = {std::move(turn)}};
  if (line.contains("timestamp") && line["timestamp"].is_number()) c.at = line["timestamp"].get<double>() / 1000;
  return c;
}

std::vector<Conversation> trace_workload(const WorkloadFlags& f) {
  std::ifstream file(f.path);
  if (!file) fail("cannot open {}", f.path);
  Random random(f.seed + 29);
  std::vector<Conversation> out;
  std::string text;
  for (int n = 1; int(out.size()) < f.n_prompts && std::getline(file, text); ++n) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}, line {}", f.path, n);
    const Json line = parse_json(text, where);
    if (!line.is_object()) fail("{}: an object is wanted", where);
    out.push_back(trace_line(line, f, random, where));
  }
  if (out.empty()) fail("{}: no requests in it", f.path);
  const double first = std::min_element(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.at < b.at; })->at;
  for (Conversation& c : out) c.at -= first;
  return out;
}

// Marsaglia and Tsang's way to a gamma variate of mean 1.
double gamma_gap(double shape, Random& random) {
  if (shape == 1) return -std::log(uniform(random));
  const double boost = shape < 1 ? std::pow(uniform(random), 1 / shape) : 1;
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = std::sqrt(-2 * std::log(uniform(random))) * std::cos(2 * M_PI * uniform(random));
    const double v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(uniform(random)) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v * boost / shape;
  }
}

}  // namespace

std::vector<Conversation> make_workload(const WorkloadFlags& f) {
  if (f.n_prompts < 1) fail("--num-prompts {}: give at least 1", f.n_prompts);
  const bool file = f.dataset == "sharegpt" || f.dataset == "trace";
  if (file && f.path.empty()) fail("--dataset-name {} needs --dataset-path", f.dataset);
  if (!file && !f.path.empty()) fail("--dataset-path {} is not read with --dataset-name {}; use sharegpt or trace", f.path, f.dataset);
  if (f.dataset == "sharegpt") return sharegpt_workload(f);
  if (f.dataset == "trace") return trace_workload(f);
  return random_workload(f);
}

void set_arrivals(std::vector<Conversation>& all, double rate, double burstiness, uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15ull + 7);
  double sum = 0;
  for (Conversation& c : all) {
    c.at = sum;
    sum += gamma_gap(burstiness, random);
  }
  for (Conversation& c : all) c.at *= double(all.size()) / rate / sum;      // a few random gaps rarely have the mean asked for; these do
}

std::string request_body(const RequestFlags& flags, const Conversation& conversation, size_t turn, const std::vector<std::string>& answers) {
  const Turn& last = conversation.turns[turn];
  Json body = {{"model", flags.model}};
  if (flags.chat) {
    Json messages = Json::array();
    for (size_t t = 0; t <= turn; ++t) {
      const Turn& said = conversation.turns[t];
      if (!said.ids.empty()) fail("token ids are for /v1/completions, not for chats: leave out --random-vocab-size, or use --backend openai");
      if (said.messages.is_array()) messages.insert(messages.end(), said.messages.begin(), said.messages.end());
      else messages.push_back({{"role", "user"}, {"content", said.text}});
      if (t < turn) messages.push_back({{"role", "assistant"}, {"content", answers[t]}});
    }
    body["messages"] = std::move(messages);
  } else if (!last.ids.empty()) {
    body["prompt"] = last.ids;
  } else {
    std::string prompt;
    for (size_t t = 0; t <= turn; ++t) {
      const Turn& said = conversation.turns[t];
      if (said.messages.is_array()) fail("messages are for chats: use --backend openai-chat");
      prompt += (t ? "\n" : "") + said.text + (t < turn ? "\n" + answers[t] : "");
    }
    body["prompt"] = std::move(prompt);
  }
  body["max_tokens"] = last.max_tokens;
  if (flags.ignore_eos) body["ignore_eos"] = true;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  for (const auto& [key, value] : flags.extra.items()) body[key] = value;
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ridge::load
