// The table behind format.h: one line a format.
#include <array>
#include <cctype>
#include <string>

#include "base/check.h"
#include "formats/format.h"
#include "formats/fp8.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"
#include "formats/plain.h"
#include "formats/q2_k.h"
#include "formats/q3_k.h"
#include "formats/q4_0.h"
#include "formats/q4_1.h"
#include "formats/q4_k.h"
#include "formats/q5_0.h"
#include "formats/q5_1.h"
#include "formats/q5_k.h"
#include "formats/q6_k.h"
#include "formats/q8_0.h"

namespace ridge {
namespace {

template <class Block>
void decode_blocks(float* out, const std::byte* data, int64_t n) {
  const auto* blocks = reinterpret_cast<const Block*>(data);
  for (int64_t i = 0; i < n / Block::kElems; ++i) decode(out + i * Block::kElems, blocks[i]);
}

template <class Block>
void encode_blocks(std::byte* data, const float* x, int64_t n) {
  auto* blocks = reinterpret_cast<Block*>(data);
  for (int64_t i = 0; i < n / Block::kElems; ++i) encode(blocks[i], x + i * Block::kElems);
}

template <class Type>
constexpr Format plain_format(FormatId id, std::string_view name) {
  Format f{id, name, 1, sizeof(typename Type::Bits), true, false, plain::decode_row<Type>, nullptr};
  if constexpr (requires { Type::encode(0.0f); }) f.writable = true, f.encode_row = plain::encode_row<Type>;
  return f;
}

template <class Block>
constexpr Format block_format(FormatId id, std::string_view name) {
  return {id, name, Block::kElems, sizeof(Block), true, true, decode_blocks<Block>, encode_blocks<Block>};
}

constexpr std::array kFormats = {
    plain_format<plain::F32>(FormatId::f32, "f32"),
    plain_format<plain::F16>(FormatId::f16, "f16"),
    plain_format<plain::Bf16>(FormatId::bf16, "bf16"),
    plain_format<plain::Number<double>>(FormatId::f64, "f64"),
    plain_format<plain::Number<int8_t>>(FormatId::i8, "i8"),
    plain_format<plain::Number<int16_t>>(FormatId::i16, "i16"),
    plain_format<plain::Number<int32_t>>(FormatId::i32, "i32"),
    plain_format<plain::Number<int64_t>>(FormatId::i64, "i64"),
    plain_format<plain::Number<uint8_t>>(FormatId::u8, "u8"),
    plain_format<plain::Number<uint16_t>>(FormatId::u16, "u16"),
    plain_format<plain::Number<uint32_t>>(FormatId::u32, "u32"),
    plain_format<plain::Number<uint64_t>>(FormatId::u64, "u64"),
    plain_format<plain::Boolean>(FormatId::boolean, "bool"),
    plain_format<plain::Fp8E4m3>(FormatId::fp8_e4m3, "fp8_e4m3"),
    plain_format<plain::Fp8E5m2>(FormatId::fp8_e5m2, "fp8_e5m2"),
    block_format<BlockQ8_0>(FormatId::q8_0, "q8_0"),
    block_format<BlockQ4_0>(FormatId::q4_0, "q4_0"),
    block_format<BlockQ4_1>(FormatId::q4_1, "q4_1"),
    block_format<BlockQ5_0>(FormatId::q5_0, "q5_0"),
    block_format<BlockQ5_1>(FormatId::q5_1, "q5_1"),
    block_format<BlockQ2K>(FormatId::q2_k, "q2_k"),
    block_format<BlockQ3K>(FormatId::q3_k, "q3_k"),
    block_format<BlockQ4K>(FormatId::q4_k, "q4_k"),
    block_format<BlockQ5K>(FormatId::q5_k, "q5_k"),
    block_format<BlockQ6K>(FormatId::q6_k, "q6_k"),
    block_format<BlockMxfp4>(FormatId::mxfp4, "mxfp4"),
    block_format<BlockNvfp4>(FormatId::nvfp4, "nvfp4"),
    Format{FormatId::unknown, "unknown", 1, 1, false, false, nullptr, nullptr},
};

constexpr bool in_order_of_ids() {
  for (size_t i = 0; i < kFormats.size(); ++i)
    if (static_cast<size_t>(kFormats[i].id) != i) return false;
  return kFormats.size() == static_cast<size_t>(FormatId::unknown) + 1;
}
static_assert(in_order_of_ids());

}  // namespace

const Format& format(FormatId id) {
  CHECK_LT(static_cast<size_t>(id), kFormats.size());
  return kFormats[static_cast<size_t>(id)];
}

std::optional<FormatId> find_format(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Format& f : kFormats)
    if (f.name == lower && f.id != FormatId::unknown) return f.id;
  return std::nullopt;
}

std::span<const Format> all_formats() { return kFormats; }

}  // namespace ridge
