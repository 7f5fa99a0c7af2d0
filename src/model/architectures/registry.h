// The families by model_type. A family is one function in one file of this folder; adding one means a file and a line in registry.cpp.
#pragma once
#include "model/construction.h"

namespace ridge {

void build_llama(Construction& c);
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
void build_gemma(Construction& c);
void build_gemma2(Construction& c);
void build_gemma3(Construction& c);

}  // namespace ridge
