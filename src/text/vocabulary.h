// Token strings and their ids, both ways. Ids may have holes; a string has one id. The table holds ids only and compares with the strings: 4 bytes a slot.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

class Vocabulary {
 public:
  static constexpr int64_t kMaxTokens = 1 << 22;        // larger ids are refused: the largest vocabularies in use are below 300,000

  void reserve(size_t n_tokens);
  // Throws Error naming `what` for an id out of range, an id that is taken by another string, or a string that has another id.
  void insert(std::string token, int64_t id, std::string_view what);
  // As GGUF files need it: a string that occurs twice is found as its last id; both ids keep the name.
  void insert_or_alias(std::string token, int64_t id, std::string_view what);

  std::optional<int32_t> find(std::string_view token) const;
  int size() const { return static_cast<int>(tokens_.size()); }                 // one past the largest id
  size_t n_tokens() const { return n_tokens_; }
  bool has(int64_t id) const { return id >= 0 && id < size() && present_[id]; }
  const std::string& name(int32_t id) const;                                    // empty for a hole and for an id out of range
  size_t longest_bytes() const { return longest_bytes_; }

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> present_;
  std::vector<int32_t> slots_;              // open addressing, -1 is free; at most half full
  size_t n_tokens_ = 0, longest_bytes_ = 0;

  void store(std::string token, int64_t id, std::string_view what);
  size_t slot_of(std::string_view token) const;
  void rehash(size_t n_slots);
};

}  // namespace ridge
