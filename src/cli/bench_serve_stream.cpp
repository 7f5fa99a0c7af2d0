// AnswerStream: server-sent events of a completion or a chat, looked at just far enough to time them.
#include "base/error.h"
#include "cli/bench_serve_client.h"

namespace ridge::load {
namespace {

// The place after `"name":` and spaces; npos when the key is not there. Inside a string the quote would be escaped, so text cannot look like a key.
size_t after_key(std::string_view data, std::string_view key, size_t from = 0) {
  const size_t at = data.find(key, from);
  if (at == std::string_view::npos) return at;
  size_t end = at + key.size();
  while (end < data.size() && data[end] == ' ') ++end;
  return end;
}

bool has_text(std::string_view data) {
  for (const std::string_view key : {"\"content\":", "\"text\":", "\"reasoning_content\":", "\"reasoning\":", "\"arguments\":"})
    for (size_t at = after_key(data, key); at != std::string_view::npos; at = after_key(data, key, at))
      if (at + 1 < data.size() && data[at] == '"' && data[at + 1] != '"') return true;
  return false;
}

std::string text_of(const Json& chunk) {
  if (!chunk.contains("choices") || !chunk["choices"].is_array() || chunk["choices"].empty()) return "";
  const Json& choice = chunk["choices"][0];
  const Json& holder = choice.contains("delta") ? choice["delta"] : choice;
  for (const char* name : {"content", "text"})
    if (holder.is_object() && holder.contains(name) && holder[name].is_string()) return holder[name].get<std::string>();
  return "";
}

int count_in(const Json& object, const char* name) { return object.is_object() && object.contains(name) && object[name].is_number_integer() ? object[name].get<int>() : 0; }

}  // namespace

void AnswerStream::feed(std::string_view bytes, double now) {
  rest_ += bytes;
  size_t begin = 0;
  for (size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string_view line(rest_.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("data:")) continue;
    line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
    event(line, now);
  }
  rest_.erase(0, begin);
}

void AnswerStream::event(std::string_view data, double now) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const bool spoke = has_text(data);
  if (spoke) {
    if (n_pieces_++ == 0) outcome.first = now;
    else outcome.gaps.push_back(now - last_);
    last_ = outcome.end = now;
    outcome.n_generated = std::max(outcome.n_generated, n_pieces_);
  }
  const size_t usage = after_key(data, "\"usage\":");
  const bool counted = usage != std::string_view::npos && usage < data.size() && data[usage] == '{';
  const bool failed = data.find("\"error\":") != std::string_view::npos;
  if (!counted && !failed && !(spoke && keep_text_)) return;
  const Json chunk = parse_json(data, "an event of the answer");
  if (!chunk.is_object()) fail("an event of the answer is not an object: {}", data.substr(0, 200));
  if (spoke && keep_text_) text += text_of(chunk);
  if (failed && chunk.contains("error") && !chunk["error"].is_null()) outcome.error = chunk["error"].is_object() && chunk["error"].contains("message") ? chunk["error"]["message"].dump() : chunk["error"].dump();
  if (counted) {
    const Json& u = chunk["usage"];
    outcome.n_prompt = count_in(u, "prompt_tokens");
    if (const int n = count_in(u, "completion_tokens")) outcome.n_generated = n;
    if (u.contains("prompt_tokens_details")) outcome.n_cached = count_in(u["prompt_tokens_details"], "cached_tokens");
  }
}

}  // namespace ridge::load
