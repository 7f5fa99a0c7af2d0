#include "eval/logits.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "files/safetensors_writer.h"

namespace ridge {

EngineOptions exact_options(EngineOptions options, int max_context) {
  options.activations = FormatId::f32;
  options.kv_format = FormatId::f32;
  return logits_options(options, max_context);
}

EngineOptions logits_options(EngineOptions options, int max_context) {
  options.rope_dynamic_exact = true;
  options.index_with_hindsight = true;
  options.max_context = max_context;
  if (options.max_batch_tokens == 0) options.max_batch_tokens = 512;
  options.max_logits = options.max_batch_tokens;
  return options;
}

std::vector<LogitsResult> compute_logits(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, int n_greedy, const BetweenSteps& between_steps) {
  const size_t n_vocab = size_t(engine.model().n_vocab);
  std::vector<LogitsResult> results(prompts.size());
  std::vector<std::vector<bool>> seen(prompts.size());      // by position: a row that is computed again is not taken again, its angles may be others
  std::unordered_map<uint64_t, size_t> index_of;
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request request{.prompt = prompts[i], .wants_all_logits = true};
    request.params.temperature = 0;
    request.params.ignore_eos = true;
    request.params.max_tokens = n_greedy;
    ids.push_back(engine.submit(std::move(request)));
    index_of[ids.back()] = i;
    results[i] = {.n_vocab = int(n_vocab), .logits = std::vector<float>(prompts[i].size() * n_vocab), .greedy_logits = std::vector<float>(n_greedy * n_vocab)};
    seen[i].resize(prompts[i].size() + n_greedy);
  }
  const SinkScope scope(engine, [&](uint64_t id, int position, std::span<const float> row) {
    const size_t i = index_of.at(id), n_prompt = prompts[i].size(), p = size_t(position);
    if (seen[i][p]) return;
    seen[i][p] = true;
    if (p < n_prompt) std::copy(row.begin(), row.end(), results[i].logits.begin() + p * n_vocab);
    if (p + 1 >= n_prompt && p + 1 - n_prompt < size_t(n_greedy)) std::copy(row.begin(), row.end(), results[i].greedy_logits.begin() + (p + 1 - n_prompt) * n_vocab);
  });
  while (!engine.idle()) {
    for (const Event& event : engine.step()) {
      if (event.finish == FinishReason::error || event.finish == FinishReason::context)
        fail("prompt {} ended early: {}", index_of.at(event.id), event.finish == FinishReason::error ? event.error : "there is no KV memory left");
      for (const Sampled& sampled : event.sampled) results[index_of.at(event.id)].greedy.push_back(sampled.token);
    }
    if (between_steps) between_steps(engine, ids);
  }
  return results;
}

std::vector<int32_t> read_ids(const std::string& path) {
  const Json json = read_json_file(path);
  if (!json.is_array() || json.empty()) fail("{}: must be a JSON list of token ids, like [1, 2, 3]", path);
  std::vector<int32_t> ids;
  for (const Json& id : json) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) fail("{}: {} is no token id", path, id.dump());
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

void write_logits(const std::string& path, const LogitsResult& result) {
  const auto rows_of = [](const auto& values, int64_t n_cols) {
    return [&values, n_cols](std::byte* out, int64_t row) { std::memcpy(out, values.data() + row * n_cols, size_t(n_cols) * sizeof(values[0])); };
  };
  const int64_t n_vocab = result.n_vocab, n_greedy = int64_t(result.greedy.size());
  std::vector<TensorSource> tensors;
  tensors.push_back({.name = "logits", .format = FormatId::f32, .shape = {int64_t(result.logits.size()) / n_vocab, n_vocab}, .encode_row = rows_of(result.logits, n_vocab)});
  if (n_greedy > 0) {
    tensors.push_back({.name = "greedy", .format = FormatId::i64, .shape = {n_greedy}, .encode_row = rows_of(result.greedy, n_greedy)});
    tensors.push_back({.name = "greedy_logits", .format = FormatId::f32, .shape = {n_greedy, n_vocab}, .encode_row = rows_of(result.greedy_logits, n_vocab)});
  }
  write_safetensors(path, tensors);
}

}  // namespace ridge
