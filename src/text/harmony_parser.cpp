#include "text/harmony_parser.h"

#include <algorithm>

#include "text/stream_parser.h"

namespace ridge {

namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kEnds[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>"};
constexpr std::string_view kHeaderStarts[] = {"<|channel|>", "<|start|>", "<|message|>", "<|constrain|>"};

}  // namespace

AnswerDelta HarmonyParser::push(std::string_view text) {
  pending_ += text;
  run(false);
  return std::exchange(delta_, {});
}

AnswerDelta HarmonyParser::finish() {
  run(true);
  return std::exchange(delta_, {});
}

void HarmonyParser::give(std::string_view text) {
  if (text.empty()) return;
  if (body_ == Body::thought) delta_.reasoning += text;
  if (body_ == Body::content) delta_.content += text;
  if (body_ == Body::call) {
    if (delta_.calls.empty() || delta_.calls.back().index != n_calls_ - 1) delta_.calls.push_back({.index = n_calls_ - 1, .name = {}, .arguments = {}});
    delta_.calls.back().arguments += text;
  }
}

void HarmonyParser::open(std::string_view header) {
  const size_t to = header.find("to=functions.");
  if (with_tools_ && to != header.npos) {
    std::string_view name = header.substr(to + 13);
    name = name.substr(0, name.find_first_of(" <\n\t"));
    delta_.calls.push_back({.index = n_calls_++, .name = std::string(name), .arguments = {}});
    body_ = Body::call;
  } else {
    body_ = header.find("analysis") != header.npos ? Body::thought : Body::content;
  }
}

void HarmonyParser::run(bool final) {
  while (!pending_.empty()) {
    if (body_ == Body::none) {
      // An answer that does not begin with a header is plain content.
      const size_t start = pending_.find_first_not_of(" \n");
      if (start == std::string::npos) return;
      const std::string_view head = std::string_view(pending_).substr(start);
      const bool header = std::ranges::any_of(kHeaderStarts, [&](std::string_view s) { return head.starts_with(s) || (!final && s.starts_with(head)); });
      if (!header && !head.starts_with("assistant") && !(!final && std::string_view("assistant").starts_with(head))) {
        body_ = Body::content;
        continue;
      }
      const size_t found = pending_.find(kMessage);
      if (found == std::string::npos) {
        if (final) pending_.clear();
        return;
      }
      open(std::string_view(pending_).substr(0, found));
      pending_.erase(0, found + kMessage.size());
      continue;
    }
    size_t place = std::string::npos, keep = 0;
    std::string_view end;
    for (std::string_view marker : kEnds) {
      if (const size_t found = pending_.find(marker); found < place) place = found, end = marker;
      keep = std::max(keep, overlap(pending_, marker));
    }
    if (place == std::string::npos) {
      if (final) keep = 0;
      give(std::string_view(pending_).substr(0, pending_.size() - keep));
      pending_.erase(0, pending_.size() - keep);
      return;
    }
    give(std::string_view(pending_).substr(0, place));
    pending_.erase(0, place + end.size());
    body_ = Body::none;
  }
}

}  // namespace ridge
