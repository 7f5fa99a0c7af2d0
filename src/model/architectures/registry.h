// The families by model_type. A family is one function in one file of this folder; adding one means a file and a line in registry.cpp.
#pragma once
#include "model/construction.h"

namespace ridge {

void build_llama(Construction& c);
void build_mamba(Construction& c);
void build_mamba2(Construction& c);
void build_bamba(Construction& c);
void build_falcon_h1(Construction& c);
void build_lfm2(Construction& c);
void build_olmo_hybrid(Construction& c);
void build_minimax(Construction& c);
void build_granitemoehybrid(Construction& c);
void build_jamba(Construction& c);
void build_nemotron_h(Construction& c);
void build_qwen3_next(Construction& c);
void build_qwen3_5(Construction& c);
void build_qwen3_5_moe(Construction& c);
void build_kimi_linear(Construction& c);
void build_mistral(Construction& c);
void build_qwen2(Construction& c);
void build_qwen3(Construction& c);
void build_phi3(Construction& c);
void build_gpt2(Construction& c);
void build_starcoder2(Construction& c);
void build_olmo2(Construction& c);
void build_olmo3(Construction& c);
void build_smollm3(Construction& c);
void build_granite(Construction& c);
void build_mixtral(Construction& c);
void build_qwen2_moe(Construction& c);
void build_qwen3_moe(Construction& c);
void build_olmoe(Construction& c);
void build_granitemoe(Construction& c);
void build_dots1(Construction& c);
void build_glm4_moe(Construction& c);
void build_ernie4_5_moe(Construction& c);
void build_gpt_oss(Construction& c);
void build_llama4(Construction& c);
void build_minimax_m2(Construction& c);
void build_mimo_v2_flash(Construction& c);
void build_gemma(Construction& c);
void build_gemma2(Construction& c);
void build_gemma3(Construction& c);
void build_gemma4(Construction& c);
void build_cohere2(Construction& c);
void build_ernie4_5(Construction& c);
void build_exaone4(Construction& c);
void build_glm4(Construction& c);
void build_gpt_neox(Construction& c);
void build_hunyuan_v1_dense(Construction& c);
void build_ministral3(Construction& c);
void build_phi(Construction& c);
void build_seed_oss(Construction& c);
void build_stablelm(Construction& c);
void build_deepseek_v2(Construction& c);
void build_deepseek_v3(Construction& c);
void build_deepseek_v32(Construction& c);
void build_deepseek_v4(Construction& c);
void build_glm_moe_dsa(Construction& c);
void build_longcat_flash(Construction& c);
void build_arcee(Construction& c);

}  // namespace ridge
