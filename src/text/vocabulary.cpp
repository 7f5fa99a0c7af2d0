#include "text/vocabulary.h"

#include <bit>
#include <functional>

#include "base/error.h"

namespace ridge {

size_t Vocabulary::slot_of(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>{}(token) & mask;
  while (slots_[slot] >= 0 && tokens_[slots_[slot]] != token) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::rehash(size_t n_slots) {
  const auto old = std::move(slots_);
  slots_.assign(n_slots, -1);
  for (const int32_t id : old)
    if (id >= 0) slots_[slot_of(tokens_[id])] = id;
}

void Vocabulary::reserve(size_t n_tokens) {
  tokens_.reserve(n_tokens);
  present_.reserve(n_tokens);
  if (const size_t wanted = std::bit_ceil(n_tokens * 2 + 16); wanted > slots_.size()) rehash(wanted);
}

void Vocabulary::store(std::string token, int64_t id, std::string_view what) {
  if (id < 0 || id >= kMaxTokens) fail("{}: token \"{}\" has id {}, which is outside 0 to {}", what, token, id, kMaxTokens - 1);
  if (has(id)) fail("{}: id {} is given to two tokens, \"{}\" and \"{}\"", what, id, tokens_[id], token);
  if (id >= size()) {
    tokens_.resize(id + 1);
    present_.resize(id + 1);
  }
  longest_bytes_ = std::max(longest_bytes_, token.size());
  tokens_[id] = std::move(token);
  present_[id] = true;
  if (++n_tokens_ * 2 > slots_.size()) rehash(std::bit_ceil(n_tokens_ * 4 + 16));
}

void Vocabulary::insert(std::string token, int64_t id, std::string_view what) {
  if (const auto known = find(token)) {
    if (*known == id) return;
    fail("{}: token \"{}\" is listed with two ids, {} and {}", what, token, *known, id);
  }
  store(std::move(token), id, what);
  slots_[slot_of(tokens_[id])] = static_cast<int32_t>(id);
}

void Vocabulary::insert_or_alias(std::string token, int64_t id, std::string_view what) {
  store(std::move(token), id, what);
  slots_[slot_of(tokens_[id])] = static_cast<int32_t>(id);
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const int32_t id = slots_[slot_of(token)];
  return id >= 0 ? std::optional(id) : std::nullopt;
}

const std::string& Vocabulary::name(int32_t id) const {
  static const std::string none;
  return has(id) ? tokens_[id] : none;
}

}  // namespace ridge
