// The tensor types of GGUF: their numbers, names and block sizes. Those without a format of ours are listed with the right sizes and refused when read.
#include "files/gguf.h"

namespace ridge {
namespace {

constexpr auto kNone = FormatId::unknown;
constexpr GgufTensorType kTypes[] = {
    {0, "F32", 1, 4, FormatId::f32},       {1, "F16", 1, 2, FormatId::f16},       {2, "Q4_0", 32, 18, FormatId::q4_0},    {3, "Q4_1", 32, 20, FormatId::q4_1},
    {6, "Q5_0", 32, 22, FormatId::q5_0},   {7, "Q5_1", 32, 24, FormatId::q5_1},   {8, "Q8_0", 32, 34, FormatId::q8_0},    {9, "Q8_1", 32, 36, kNone},
    {10, "Q2_K", 256, 84, FormatId::q2_k}, {11, "Q3_K", 256, 110, FormatId::q3_k}, {12, "Q4_K", 256, 144, FormatId::q4_k}, {13, "Q5_K", 256, 176, FormatId::q5_k},
    {14, "Q6_K", 256, 210, FormatId::q6_k}, {15, "Q8_K", 256, 292, kNone},         {16, "IQ2_XXS", 256, 66, kNone},        {17, "IQ2_XS", 256, 74, kNone},
    {18, "IQ3_XXS", 256, 98, kNone},       {19, "IQ1_S", 256, 50, kNone},         {20, "IQ4_NL", 32, 18, kNone},          {21, "IQ3_S", 256, 110, kNone},
    {22, "IQ2_S", 256, 82, kNone},         {23, "IQ4_XS", 256, 136, kNone},       {24, "I8", 1, 1, FormatId::i8},         {25, "I16", 1, 2, FormatId::i16},
    {26, "I32", 1, 4, FormatId::i32},      {27, "I64", 1, 8, FormatId::i64},      {28, "F64", 1, 8, FormatId::f64},       {29, "IQ1_M", 256, 56, kNone},
    {30, "BF16", 1, 2, FormatId::bf16},    {34, "TQ1_0", 256, 54, kNone},         {35, "TQ2_0", 256, 66, kNone},          {39, "MXFP4", 32, 17, FormatId::mxfp4},
    {40, "NVFP4", 64, 36, FormatId::nvfp4}, {41, "Q1_0", 128, 18, kNone},          {42, "Q2_0", 64, 18, kNone},
};

}  // namespace

const GgufTensorType* find_gguf_type(uint32_t number) {
  for (const GgufTensorType& t : kTypes)
    if (t.number == number) return &t;
  return nullptr;
}

std::optional<uint32_t> gguf_type_of(FormatId format) {
  for (const GgufTensorType& t : kTypes)
    if (t.format == format && format != FormatId::unknown) return t.number;
  return std::nullopt;
}

}  // namespace ridge
