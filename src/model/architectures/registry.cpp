// The table of families, and loading: config.json -> family -> a Model with prepared weights.
#include "model/architectures/registry.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace ridge {
namespace {

struct Family { std::string_view model_type; void (*build)(Construction&); };
constexpr Family kFamilies[] = {
    {"llama", build_llama},   {"mistral", build_mistral}, {"qwen2", build_qwen2},     {"qwen3", build_qwen3},   {"phi3", build_phi3},
    {"gpt2", build_gpt2},     {"starcoder2", build_starcoder2}, {"olmo2", build_olmo2}, {"olmo3", build_olmo3}, {"smollm3", build_smollm3},
    {"granite", build_granite}, {"gemma", build_gemma},   {"gemma2", build_gemma2},   {"gemma3_text", build_gemma3}, {"gemma3", build_gemma3},
    {"gemma4_text", build_gemma4}, {"gemma4", build_gemma4},
    {"cohere2", build_cohere2}, {"ernie4_5", build_ernie4_5}, {"exaone4", build_exaone4}, {"glm4", build_glm4}, {"gpt_neox", build_gpt_neox},
    {"hunyuan_v1_dense", build_hunyuan_v1_dense}, {"ministral3", build_ministral3}, {"phi", build_phi}, {"seed_oss", build_seed_oss}, {"stablelm", build_stablelm},
    {"mixtral", build_mixtral}, {"qwen2_moe", build_qwen2_moe}, {"qwen3_moe", build_qwen3_moe}, {"olmoe", build_olmoe}, {"granitemoe", build_granitemoe},
    {"dots1", build_dots1}, {"glm4_moe", build_glm4_moe}, {"ernie4_5_moe", build_ernie4_5_moe}, {"gpt_oss", build_gpt_oss},
    {"minimax_m2", build_minimax_m2}, {"mimo_v2_flash", build_mimo_v2_flash}, {"llama4_text", build_llama4}, {"llama4", build_llama4},
    {"deepseek_v2", build_deepseek_v2}, {"deepseek_v3", build_deepseek_v3}, {"deepseek_v32", build_deepseek_v32}, {"glm_moe_dsa", build_glm_moe_dsa},
    {"longcat_flash", build_longcat_flash}, {"arcee", build_arcee}, {"deepseek_v4", build_deepseek_v4},
    {"mamba", build_mamba}, {"mamba2", build_mamba2}, {"bamba", build_bamba}, {"falcon_h1", build_falcon_h1}, {"lfm2", build_lfm2}, {"olmo_hybrid", build_olmo_hybrid},
    {"minimax", build_minimax}, {"granitemoehybrid", build_granitemoehybrid}, {"jamba", build_jamba}, {"nemotron_h", build_nemotron_h}, {"kimi_linear", build_kimi_linear},
    {"qwen3_next", build_qwen3_next}, {"qwen3_5_text", build_qwen3_5}, {"qwen3_5", build_qwen3_5}, {"qwen3_5_moe_text", build_qwen3_5_moe}, {"qwen3_5_moe", build_qwen3_5_moe},
};

const Family& find_family(const Config& config) {
  const std::string type = config.text("model_type");
  for (const Family& f : kFamilies)
    if (f.model_type == type) return f;
  config.refuse("model_type", fmt::format("no such family is known; the nearest are {} (all: {})", fmt::join(nearest_names(type, known_families(), 3), ", "),
                                          fmt::join(known_families(), ", ")));
}

// How the weights are stored is read from the tensors themselves (files/quant_config); here only methods that nobody would recognise there are refused.
void check_quantization(const Config& config) {
  if (!config.has("quantization_config")) return;
  const Config section = config.section("quantization_config");
  const std::string method = section.text_or("quant_method", "absent");
  if (method != "modelopt" && method != "compressed-tensors" && method != "fp8" && method != "mxfp4")
    section.refuse("quant_method", "known methods are modelopt, compressed-tensors (NVFP4, FP8), fp8 and mxfp4; use the bf16, a GGUF or an NVFP4 version of this model");
  section.refuse_unless("weight_block_size", Json::array({128, 128}));
}

}  // namespace

std::vector<std::string> known_families() {
  std::vector<std::string> names;
  for (const Family& f : kFamilies) names.emplace_back(f.model_type);
  return names;
}

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, Backend& backend, const ModelOptions& options) {
  const Config config(checkpoint.config, fmt::format("config.json of {}", checkpoint.name));
  if (!checkpoint.weights) fail("{} has a configuration but no weights: fetch the whole model (ridge pull)", checkpoint.name);
  if (options.kv_format != FormatId::f32 && options.kv_format != FormatId::f16 && options.kv_format != FormatId::bf16 && options.kv_format != FormatId::fp8_e4m3)
    fail("KV format {} is not supported; use f32, f16, bf16 or fp8_e4m3", format(options.kv_format).name);
  const Family& family = find_family(config);
  check_quantization(config);

  auto model = std::make_unique<Model>();
  model->family = family.model_type;
  Weights weights(checkpoint, backend, options, *model);
  Construction construction(config, weights, options, *model);
  family.build(construction);
  if (options.progress) options.progress(1.0, checkpoint.name);
  return model;
}

}  // namespace ridge
