#include "text/pipeline.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"

namespace ridge {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;       // places in a piece are 32 bits wide, with room for a normalizer that triples a text

bool is_ascii(std::string_view text) {
  size_t i = 0;
  for (uint64_t word; i + 8 <= text.size(); i += 8) {
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080ull) return false;
  }
  for (; i < text.size(); ++i)
    if (text[i] & 0x80) return false;
  return true;
}

}  // namespace

PipelineTokenizer::PipelineTokenizer(TokenizerParts parts) : parts_(std::move(parts)), n_vocab_(parts_.vocabulary->size()) {
  for (const AddedToken& t : parts_.added.all()) n_vocab_ = std::max(n_vocab_, t.id + 1);
}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text, bool add_special_tokens, bool parse_special) const {
  if (text.size() > kMaxTextBytes) fail("a text of {} bytes is too long to tokenize at once (at most {})", text.size(), kMaxTextBytes);
  std::string repaired;
  if (!is_ascii(text) && !utf8::is_valid(text)) text = repaired = utf8::replace_invalid(text);
  std::vector<int32_t> out;
  out.reserve(text.size() / 3 + 4);
  if (add_special_tokens) out = parts_.frame.before;

  std::vector<AddedTokens::Part> parts, inner;
  parts_.added.split(parts, text, AddedTokens::When::before_normalizing, parse_special);
  for (const auto& part : parts) {
    if (part.id >= 0) { out.push_back(part.id); continue; }
    const bool at_start = part.text.data() == text.data();
    std::string normalized;
    std::string_view piece = part.text;
    if (parts_.normalizer) piece = normalized = parts_.normalizer->apply(std::string(part.text));
    inner.clear();
    parts_.added.split(inner, piece, AddedTokens::When::after_normalizing, parse_special);
    for (const auto& p : inner) {
      if (p.id >= 0) out.push_back(p.id);
      else encode_text(out, p.text, at_start && p.text.data() == piece.data());
    }
  }
  if (add_special_tokens) out.insert(out.end(), parts_.frame.after.begin(), parts_.frame.after.end());
  return out;
}

void PipelineTokenizer::encode_text(std::vector<int32_t>& out, std::string_view text, bool at_start) const {
  StringArena arena;
  std::vector<Piece> pieces{{text, at_start}};
  for (const auto& stage : parts_.pre_tokenizers) stage->apply(pieces, arena);
  parts_.model->encode(out, pieces);
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const AddedToken* added = parts_.added.find(id);
    if (added ? added->special && skip_special_tokens : !parts_.vocabulary->has(id)) continue;
    tokens.push_back(added ? added->content : parts_.vocabulary->name(id));
  }
  if (tokens.empty()) return {};
  if (parts_.decoder) parts_.decoder->apply(tokens);
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !parts_.decoder) out += ' ';
    out += tokens[i];
  }
  return out;
}

std::string PipelineTokenizer::token_name(int32_t id) const {
  const AddedToken* added = parts_.added.find(id);
  return added ? added->content : parts_.vocabulary->name(id);
}

std::string PipelineTokenizer::token_bytes(int32_t id) const {
  std::string name = token_name(id);
  return parts_.decoder ? parts_.decoder->bytes(std::move(name)) : name;
}

std::optional<int32_t> PipelineTokenizer::find(std::string_view token) const {
  if (const AddedToken* added = parts_.added.find(token)) return added->id;
  return parts_.vocabulary->find(token);
}

bool PipelineTokenizer::is_special(int32_t id) const {
  const AddedToken* added = parts_.added.find(id);
  return added && added->special;
}

std::string PipelineTokenizer::description() const {
  const auto& all = parts_.added.all();
  return fmt::format("{}, {} added ({} special)", parts_.model->description(), all.size(),
                     std::count_if(all.begin(), all.end(), [](const AddedToken& t) { return t.special; }));
}

}  // namespace ridge
