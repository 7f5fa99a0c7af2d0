#include "text/stream_parser.h"

#include <algorithm>

namespace ridge {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

size_t overlap(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.ends_with(marker.substr(0, n))) return n;
  }
  return 0;
}

namespace {

// The part of a pattern that a search can look for.
std::string_view first_word(std::string_view pattern) {
  pattern = trimmed(pattern);
  return pattern.substr(0, pattern.find_first_of(" \n\r\t"));
}

}  // namespace

StreamParser::StreamParser(const AnswerFamily& family, std::string reasoning_begin, std::string reasoning_end, bool in_thought, std::string begun, bool with_tools, const Json& tools)
    : family_(family), reasoning_begin_(std::move(reasoning_begin)), reasoning_end_(std::move(reasoning_end)), with_tools_(with_tools), trims_(with_tools || in_thought), tools_(tools), pending_(std::move(begun)),
      state_(in_thought ? State::thought : family.header_end.empty() ? State::content : State::header) {}

AnswerDelta StreamParser::push(std::string_view text) {
  pending_ += text;
  return run();
}

AnswerDelta StreamParser::finish() {
  final_ = true;
  AnswerDelta out = run();
  if (n_calls_ == 0) out.content += std::exchange(held_content_, {});
  return out;
}

AnswerDelta StreamParser::run() {
  while (step()) {}
  return std::exchange(delta_, {});
}

bool StreamParser::step() {
  if (pending_.empty()) return false;
  switch (state_) {
    case State::header: return step_header();
    case State::thought: return step_thought();
    case State::content: return step_content();
    case State::arguments: return step_arguments();
    case State::tail: return step_tail();
    case State::tags: return step_tags();
    case State::value: return step_value();
    default: return step_next();
  }
}

void StreamParser::give_content(std::string_view text) {
  if (text.empty()) return;
  if (!trims_) {
    delta_.content += text;
    has_content_ = true;
    return;
  }
  const std::string all = std::exchange(held_content_, {}) + std::string(text);
  size_t begin = 0, end = all.size();
  if (!has_content_) while (begin < end && is_space(all[begin])) ++begin;
  while (end > begin && is_space(all[end - 1])) --end;
  held_content_ = all.substr(end);
  if (begin == end) {
    if (!has_content_) held_content_.clear();
    return;
  }
  delta_.content += all.substr(begin, end - begin);
  has_content_ = true;
}

void StreamParser::give_reasoning(std::string_view text) {
  const std::string all = std::exchange(held_reasoning_, {}) + std::string(text);
  size_t begin = 0, end = all.size();
  if (!has_reasoning_) while (begin < end && is_space(all[begin])) ++begin;
  while (end > begin && is_space(all[end - 1])) --end;
  if (begin == end && !has_reasoning_) return;
  held_reasoning_ = all.substr(end);
  if (begin == end) return;
  delta_.reasoning += all.substr(begin, end - begin);
  has_reasoning_ = true;
}

bool StreamParser::step_header() {
  const size_t found = pending_.find(family_.header_end);
  if (found == std::string::npos && pending_.size() < 256 && !final_) return false;
  if (found != std::string::npos) pending_.erase(0, found + family_.header_end.size());
  state_ = State::content;
  return true;
}

bool StreamParser::step_thought() {
  const size_t found = pending_.find(reasoning_end_);
  if (found == std::string::npos) {
    const size_t keep = final_ ? 0 : overlap(pending_, reasoning_end_);
    give_reasoning(std::string_view(pending_).substr(0, pending_.size() - keep));
    pending_.erase(0, pending_.size() - keep);
    return false;
  }
  give_reasoning(std::string_view(pending_).substr(0, found));
  held_reasoning_.clear();
  pending_.erase(0, found + reasoning_end_.size());
  state_ = State::content;
  trims_ = true;
  thought_allowed_ = false;
  return true;
}

bool StreamParser::step_content() {
  if (with_tools_ && family_.bare_object && !has_content_) {
    const size_t start = pending_.find_first_not_of(" \n\r\t");
    if (start == std::string::npos) return false;
    if (pending_[start] == '{') {
      pending_.erase(0, start);
      return step_call(1);
    }
  }
  struct Marker { std::string_view text; int kind; };          // 0 dropped, 1 a thought, 2 calls
  std::vector<Marker> markers;
  for (const std::string& dropped : family_.dropped) markers.push_back({dropped, 0});
  if (!reasoning_begin_.empty() && thought_allowed_ && !has_content_) markers.push_back({trimmed(reasoning_begin_), 1});
  if (with_tools_) {
    for (const std::string* begin : {&family_.section_begin, &family_.call_begin}) if (!begin->empty()) markers.push_back({first_word(*begin), 2});
  }
  size_t place = std::string::npos, partial = pending_.size();
  const Marker* first = nullptr;
  for (const Marker& marker : markers) {
    const size_t found = pending_.find(marker.text);
    if (found != std::string::npos && (found < place || (found == place && marker.text.size() > first->text.size()))) place = found, first = &marker;
    partial = std::min(partial, pending_.size() - overlap(pending_, marker.text));
  }
  // A longer marker may still begin where, or before, a shorter one was found.
  if (first != nullptr && !final_) {
    for (const Marker& marker : markers) {
      const size_t begins = pending_.size() - overlap(pending_, marker.text);
      if (begins < pending_.size() && begins <= place) {
        give_content(std::string_view(pending_).substr(0, begins));
        pending_.erase(0, begins);
        return false;
      }
    }
  }
  if (first == nullptr) {
    const size_t keep = final_ ? 0 : pending_.size() - partial;
    give_content(std::string_view(pending_).substr(0, pending_.size() - keep));
    pending_.erase(0, pending_.size() - keep);
    return false;
  }
  // Only white space before it: then it is still the beginning.
  if (first->kind == 1 && !trimmed(std::string_view(pending_).substr(0, place)).empty()) {
    give_content(std::string_view(pending_).substr(0, place + first->text.size()));
    pending_.erase(0, place + first->text.size());
    return true;
  }
  const Marker marker = *first;
  if (marker.kind == 1) {
    held_content_.clear();
    pending_.erase(0, place + marker.text.size());
    state_ = State::thought;
    return true;
  }
  give_content(std::string_view(pending_).substr(0, place));
  pending_.erase(0, place);
  if (marker.kind == 0) {
    pending_.erase(0, marker.text.size());
    return true;
  }
  return step_call(marker.text.size());
}

bool StreamParser::not_a_call(size_t trigger_size) {
  give_content(std::string_view(pending_).substr(0, trigger_size));
  pending_.erase(0, trigger_size);
  return !pending_.empty();
}

// The text begins with what opens a call.
bool StreamParser::step_call(size_t trigger_size) {
  const auto go_on = [&](Reading reading) { return reading == Reading::bad || final_ ? not_a_call(trigger_size) : false; };
  size_t at = 0;
  if (family_.form == CallForm::python || family_.form == CallForm::brace) {
    std::vector<WholeCall> calls(1);
    if (const Reading r = read_marker(pending_, at, family_.form == CallForm::python ? family_.section_begin : family_.call_begin); r != Reading::good) return go_on(r);
    const Reading r = family_.form == CallForm::python ? read_python_calls(calls, pending_, at) : read_brace_call(calls[0], pending_, at, family_.quote);
    if (r != Reading::good) return go_on(r);
    const std::string& end = family_.form == CallForm::python ? family_.section_end : family_.call_end;
    if (read_marker(pending_, at, end) == Reading::more && !final_) return false;
    for (const WholeCall& call : calls) give_call(call.name, call.arguments);
    pending_.erase(0, at);
    return true;
  }
  CallHead head;
  if (family_.form == CallForm::json || family_.form == CallForm::list) {
    const std::string& begin = family_.form == CallForm::json ? family_.call_begin : family_.section_begin;
    if (!begin.empty()) if (const Reading r = read_marker(pending_, at, begin); r != Reading::good) return go_on(r);
    if (family_.form == CallForm::list) {
      if (const Reading r = read_marker(pending_, at, "["); r != Reading::good) return go_on(r);
      size_t end = at;
      const Reading none = read_marker(pending_, end, "]");
      if (none == Reading::good) {
        pending_.erase(0, end);
        state_ = State::content;
        return true;
      }
    }
    if (const Reading r = read_json_head(head, pending_, at, family_); r != Reading::good) return go_on(r);
    return take_head(head);
  }
  size_t after_section = 0;
  if (!family_.section_begin.empty()) {
    const Reading section = read_marker(pending_, after_section, family_.section_begin);
    if (section == Reading::more) return go_on(section);
    if (section == Reading::good) at = after_section;
  }
  if (const Reading r = read_marker(pending_, at, family_.call_begin); r != Reading::good) return go_on(r);
  if (const Reading r = read_named_head(head, pending_, at, family_); r != Reading::good) return go_on(r);
  if (family_.form == CallForm::named) {
    size_t brace = head.end;
    const Reading open = read_marker(pending_, brace, "{");
    size_t end = head.end;
    if (open != Reading::good && !family_.call_end.empty() && read_marker(pending_, end, family_.call_end) == Reading::good) {
      head.arguments = "{}";
    } else if (open != Reading::good) {
      return go_on(open);
    } else {
      head.end = brace - 1;
    }
  }
  return take_head(head);
}

bool StreamParser::take_head(const CallHead& head) {
  pending_.erase(0, head.end);
  if (head.arguments) {
    give_call(head.name, *head.arguments);
    depth_ = 0;
    in_text_ = escaped_ = false;
    state_ = State::tail;
    return true;
  }
  begin_call(head.name);
  if (family_.form == CallForm::tags) {
    call_name_ = head.name;
    first_key_ = true;
    state_ = State::tags;
  } else {
    extent_ = {};
    state_ = State::arguments;
  }
  return true;
}

void StreamParser::begin_call(const std::string& name) {
  held_content_.clear();
  trims_ = true;
  delta_.calls.push_back({.index = n_calls_++, .name = name, .arguments = {}});
}

void StreamParser::give_arguments(std::string_view text) {
  if (text.empty()) return;
  const int index = n_calls_ - 1;
  if (delta_.calls.empty() || delta_.calls.back().index != index) delta_.calls.push_back({.index = index, .name = {}, .arguments = {}});
  delta_.calls.back().arguments += text;
}

void StreamParser::give_call(const std::string& name, const std::string& arguments) {
  begin_call(name);
  give_arguments(arguments);
}

bool StreamParser::step_arguments() {
  size_t n = 0;
  while (n < pending_.size() && !extent_.ended() && extent_.take(pending_[n])) ++n;
  give_arguments(std::string_view(pending_).substr(0, n));
  pending_.erase(0, n);
  if (!extent_.ended()) return false;
  depth_ = family_.form == CallForm::named ? 0 : 1;
  in_text_ = escaped_ = false;
  state_ = State::tail;
  return true;
}

// Behind the arguments: the rest of a call's object, and what closes the call.
bool StreamParser::step_tail() {
  const bool list = family_.form == CallForm::list;
  const std::string& end = list ? family_.section_end : family_.call_end;
  while (!pending_.empty()) {
    size_t at = 0;
    if (!in_text_ && !end.empty()) {
      const Reading r = read_marker(pending_, at, end);
      if (r == Reading::good) {
        pending_.erase(0, at);
        if (list) state_ = State::content;
        else after_call();
        return true;
      }
      if (r == Reading::more && !final_) return false;
    }
    if (depth_ == 0) {
      if (list) {
        state_ = State::next_in_list;
        return true;
      }
      after_call();                          // its end is missing, or it has none
      return true;
    }
    const char c = pending_[0];
    pending_.erase(0, 1);
    if (in_text_) {
      if (escaped_) escaped_ = false;
      else if (c == '\\') escaped_ = true;
      else if (c == '"') in_text_ = false;
    } else if (c == '"') {
      in_text_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      --depth_;
    }
  }
  return false;
}

void StreamParser::after_call() {
  if (family_.form == CallForm::json) state_ = family_.bare_object ? State::next_bare : State::content;
  else state_ = State::next_in_section;
}

// Between two calls.
bool StreamParser::step_next() {
  size_t at = 0;
  const auto skip = [&](std::string_view what) { while (at < pending_.size() && what.find(pending_[at]) != what.npos) ++at; };
  if (state_ == State::next_bare) {
    skip("; ,\n\r\t");
    if (at == pending_.size()) return false;
    CallHead head;
    if (pending_[at] == '{') {
      const Reading r = read_json_head(head, pending_, at, family_);
      if (r == Reading::more && !final_) return false;
      if (r == Reading::good) return take_head(head);
    }
    state_ = State::content;
    has_content_ = true;                     // a brace further on is no call any more
    return true;
  }
  if (state_ == State::next_in_list) {
    skip(", \n\r\t");
    if (at == pending_.size()) return false;
    if (pending_[at] == ']') {
      size_t end = at + 1;
      if (!family_.section_end.empty() && read_marker(pending_, end, family_.section_end) == Reading::more && !final_) return false;
      pending_.erase(0, end);
      state_ = State::content;
      return true;
    }
    CallHead head;
    const Reading r = read_json_head(head, pending_, at, family_);
    if (r == Reading::more && !final_) return false;
    if (r == Reading::good) return take_head(head);
    state_ = State::content;
    return true;
  }
  if (!family_.section_end.empty()) {
    const Reading r = read_marker(pending_, at, family_.section_end);
    if (r == Reading::good) {
      pending_.erase(0, at);
      state_ = State::content;
      return true;
    }
    if (r == Reading::more && !final_) return false;
  }
  at = 0;
  const Reading r = read_marker(pending_, at, family_.call_begin);
  if (r == Reading::more && !final_) return false;
  if (r == Reading::good) {
    const size_t start = pending_.find_first_not_of(" \n\r\t");
    CallHead head;
    size_t from = at;
    Reading read = read_named_head(head, pending_, from, family_);
    if (read == Reading::good && family_.form == CallForm::named) {
      size_t brace = head.end;
      read = read_marker(pending_, brace, "{");
      head.end = brace - 1;
    }
    if (read == Reading::more && !final_) return false;
    if (read == Reading::good) return take_head(head);
    pending_.erase(0, start);
  }
  state_ = State::content;
  return r == Reading::good ? not_a_call(first_word(family_.call_begin).size()) : true;
}

}  // namespace ridge
