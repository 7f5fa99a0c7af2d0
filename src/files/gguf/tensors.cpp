#include "files/gguf/tensors.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "files/gguf/layout.h"
#include "files/gguf_names.h"

namespace ridge {
namespace {

using Source = std::shared_ptr<TensorSource>;

bool is_integer(FormatId f) {
  switch (f) {
    case FormatId::i8: case FormatId::i16: case FormatId::i32: case FormatId::i64: case FormatId::u8: case FormatId::u16: case FormatId::u32: case FormatId::u64: case FormatId::boolean: return true;
    default: return false;
  }
}

// What llama.cpp adds, multiplies elementwise or convolves with is f32 there, and so are routers.
bool is_f32_in_gguf(std::string_view name, const std::vector<int64_t>& shape) {
  if (shape.size() < 2 || name.ends_with(".bias")) return true;
  for (const std::string_view part : {"_norm.", ".ffn_gate_inp", ".ssm_conv1d", ".shortconv.conv", ".attn_sinks", "position_embd"})
    if (name.find(part) != std::string_view::npos) return true;
  return name.ends_with(".ssm_a") || name.ends_with(".ssm_d");
}

// Whether a file has a place for the one scale of an nvfp4 tensor: llama.cpp multiplies by it after some matrices only.
bool has_scale_in_gguf(std::string_view name) {
  static constexpr std::string_view kStems[] = {"attn_q", "attn_k", "attn_v", "attn_output", "attn_qkv", "attn_gate", "ffn_gate", "ffn_up", "ffn_down", "ffn_gate_shexp", "ffn_up_shexp",
                                                "ffn_down_shexp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ssm_in", "ssm_out", "ssm_alpha", "ssm_beta"};
  if (!name.starts_with("blk.")) return name == "token_embd.weight" || name == "output.weight" || name == "token_embd" || name == "output";
  const size_t dot = name.find('.', 4);
  if (dot == std::string_view::npos || !name.ends_with(".weight")) return false;
  return std::find(std::begin(kStems), std::end(kStems), name.substr(dot + 1, name.size() - dot - 1 - 7)) != std::end(kStems);
}

// All numbers of the tensor asked for last: a tensor whose numbers leave their rows is decoded whole, usually for two tensors of the file in turn.
struct Decoded {
  Source of;
  std::vector<float> numbers;

  const std::vector<float>& get(const Source& t) {
    if (of == t) return numbers;
    of = t;
    const int64_t rows = t->rows(), cols = t->cols();
    numbers.resize(static_cast<size_t>(rows * cols));
    for (int64_t r = 0; r < rows; ++r) t->numbers_of_row(numbers.data() + r * cols, r);
    return numbers;
  }
};

class Converter {
 public:
  Converter(const GgufArchitecture& a, const Json& config) : a_(a), config_(config) {}

  TensorSource convert(const Source& t, const GgufMatch& match) {
    const GgufLayout layout = layout_of(*t, match);
    const Numbers numbers = match.line->numbers;
    const bool scaled = a_.factor && is_scaled(*t);
    TensorSource out{.name = match.name, .format = t->format, .shape = layout.gguf_shape, .scale = t->scale};
    // An element of a stack is a vector only where the stack is a list of them.
    const bool is_f32 = match.index < 0 ? is_f32_in_gguf(match.name, out.shape) : out.shape.size() < 2;
    if (is_f32 && !is_integer(t->format)) out.format = FormatId::f32;
    else if (t->format == FormatId::nvfp4 && !has_scale_in_gguf(match.name)) out.format = FormatId::q8_0;
    const bool whole_rows = layout.whole_rows && out.cols() == t->cols() && out.format == t->format && numbers == Numbers::same && !scaled;
    if (whole_rows) {
      if (layout.same_order) out.encode_row = [t](std::byte* bytes, int64_t r) { t->encode_row(bytes, r); };
      else out.encode_row = [t, layout](std::byte* bytes, int64_t r) { t->encode_row(bytes, layout.place(r, 0).row); };
      return out;
    }
    if (out.cols() % format(out.format).block_elems != 0) out.format = out.cols() % format(FormatId::q8_0).block_elems == 0 ? FormatId::q8_0 : FormatId::f32;
    if (out.format != t->format && out.format != FormatId::nvfp4) out.scale = 1.0f;
    out.encode_row = [t, layout, numbers, scaled, this_factor = a_.factor, config = config_, decoded = decoded_, to = out.format, scale = out.scale, cols = out.cols(),
                      hf_cols = t->cols()](std::byte* bytes, int64_t r) {
      const std::vector<float>& all = decoded->get(t);
      std::vector<float> row(static_cast<size_t>(cols));
      for (int64_t c = 0; c < cols; ++c) {
        const Place p = layout.same_order ? Place{0, r * cols + c} : layout.place(r, c);
        const auto at = static_cast<size_t>(p.row * hf_cols + p.col);
        const float factor = scaled ? this_factor(config, t->name, static_cast<int64_t>(at) / hf_cols) : 1.0f;
        row[static_cast<size_t>(c)] = to_gguf(numbers, all[at] * factor);
      }
      encode_numbers(bytes, row.data(), cols, to, scale);
    };
    return out;
  }

 private:
  // gpt-oss's blocks are whole rows of gate and up in turns; in bf16 the same stack lies transposed.
  GgufLayout layout_of(const TensorSource& t, const GgufMatch& match) const {
    const Change change = match.line->change;
    if (!t.rows_as_stored || (change != Change::transposed && change != Change::transposed_even && change != Change::transposed_odd)) return layout_from_hf(change, t.shape, config_, t.name);
    GgufLayout l{.gguf_shape = t.shape, .hf_shape = t.shape};
    if (change == Change::transposed) return l;
    if (t.shape.size() != 3 || t.shape[1] % 2 != 0) fail("tensor '{}' of shape [{}] should stack gate and up of each expert", t.name, fmt::join(t.shape, ", "));
    l.gguf_shape[1] /= 2;
    l.same_order = false;
    l.place = [n = l.gguf_shape[1], odd = change == Change::transposed_odd](int64_t r, int64_t c) { return Place{r / n * 2 * n + 2 * (r % n) + odd, c}; };
    return l;
  }

  bool is_scaled(const TensorSource& t) const {
    if (t.shape.size() < 2) return false;
    const int64_t rows = t.rows();
    for (int64_t r = 0; r < rows; ++r)
      if (a_.factor(config_, t.name, r) != 1.0f) return true;
    return false;
  }

  const GgufArchitecture& a_;
  const Json& config_;
  std::shared_ptr<Decoded> decoded_ = std::make_shared<Decoded>();
};

struct Stack {
  size_t place;                              // in the list of tensors
  std::map<int64_t, TensorSource> elements;
};

TensorSource stacked(const std::string& name, Stack& stack, std::vector<float>& scales) {
  std::vector<TensorSource> all;
  for (auto& [index, t] : stack.elements) {
    if (index != static_cast<int64_t>(all.size())) fail("'{}' cannot be made: there is an element {}, but no {}", name, index, all.size());
    if (!all.empty() && (t.shape != all[0].shape || t.format != all[0].format)) fail("'{}' cannot be made: element {} differs from the others in shape or format", name, index);
    scales.push_back(t.scale);
    all.push_back(std::move(t));
  }
  TensorSource out{.name = name, .format = all[0].format, .shape = all[0].shape};
  const int64_t rows = all[0].rows();
  out.shape.insert(out.shape.begin(), static_cast<int64_t>(all.size()));
  out.encode_row = [all = std::move(all), rows](std::byte* bytes, int64_t r) { all[static_cast<size_t>(r / rows)].encode_row(bytes, r % rows); };
  return out;
}

// The language model inside a multimodal checkpoint has the names it has alone.
std::string text_name(const std::string& name) {
  for (const auto& [long_prefix, prefix] : {std::pair{"model.language_model.", "model."}, {"language_model.model.", "model."}, {"language_model.lm_head.", "lm_head."}})
    if (name.starts_with(long_prefix)) return prefix + name.substr(std::string_view(long_prefix).size());
  return name;
}

}  // namespace

std::vector<TensorSource> gguf_tensors(const GgufArchitecture& a, const Json& config, const std::vector<TensorSource>& tensors, std::vector<std::string>* left_out) {
  Converter converter(a, config);
  const int64_t n_layers = count_in(config, "num_hidden_layers|n_layer").value_or(INT64_MAX);
  const bool tied = config.contains("tie_word_embeddings") && config["tie_word_embeddings"] == true;
  std::vector<TensorSource> out;
  std::map<std::string, Stack> stacks;
  std::set<std::string> names;
  const auto claim = [&](const std::string& name) {
    if (!names.insert(name).second) fail("tensor '{}' would be written twice", name);
  };
  for (const TensorSource& original : tensors) {
    auto t = std::make_shared<TensorSource>(original);
    t->name = text_name(t->name);
    if (t->shape.empty()) t->shape = {1};
    const std::vector<GgufMatch> matches = match_hf_name(a, t->name);
    if (left_out && (matches.empty() || layer_in(t->name) >= n_layers || (tied && t->name == "lm_head.weight"))) {
      left_out->push_back(t->name);
      continue;
    }
    if (matches.empty()) {
      claim(t->name);
      out.push_back(*t);
    }
    for (const GgufMatch& match : matches) {
      if (match.index < 0) {
        claim(match.name);
        out.push_back(converter.convert(t, match));
        continue;
      }
      const auto [it, is_new] = stacks.try_emplace(match.name);
      if (is_new) {
        claim(match.name);
        it->second.place = out.size();
        out.push_back({.name = match.name});
      }
      if (!it->second.elements.emplace(match.index, converter.convert(t, match)).second) fail("tensor '{}' would be written twice", t->name);
    }
  }
  std::map<std::string, std::vector<float>> scales;
  for (auto& [name, stack] : stacks) out[stack.place] = stacked(name, stack, scales[name]);
  // Our own nvfp4 keeps the tensor-wide scale apart, as llama.cpp reads it: one number, or one for each expert.
  const size_t n = out.size();
  for (size_t i = 0; i < n; ++i) {
    const std::string stem = out[i].name.ends_with(".weight") ? out[i].name.substr(0, out[i].name.size() - 7) : out[i].name;
    if (const auto it = scales.find(out[i].name); it != scales.end()) {
      const std::vector<float>& s = it->second;
      if (std::any_of(s.begin(), s.end(), [](float x) { return x != 1.0f; })) out.push_back(f32_source(stem + ".scale", {static_cast<int64_t>(s.size())}, s));
    } else if (out[i].scale != 1.0f) {
      const auto n_scales = static_cast<size_t>(stem.ends_with("_exps") && out[i].shape.size() == 3 ? out[i].shape[0] : 1);
      out.push_back(f32_source(stem + ".scale", {static_cast<int64_t>(n_scales)}, std::vector<float>(n_scales, out[i].scale)));
    }
  }
  return out;
}

}  // namespace ridge
