// The Matmul candidates of an ISA, in the order of preference. They agree bit for bit wherever they support the same arithmetic.
#pragma once
#include <span>

#include "backend/kernel.h"
#include "backend/op.h"
#include "cpu/lane.h"
#include "cpu/simd/vocabulary.h"

namespace ridge::cpu::RIDGE_ISA_NS {

std::span<const Kernel<Matmul, Lane>> matmul_kernels();

// The candidate that uses the ISA's matrix unit, where it has one (kMatrixName in simd/dot.h): kernels/amx_matmul.cpp, kernels/i8mm_matmul.cpp.
bool matrix_supports(const Matmul& op);
void run_matrix(const Matmul& op, Lane& lane);

// Panels [first, last) of weight i on all rows of op.x, for ops that bring their rows together themselves (MoeMatmul). `x` holds those rows quantized where the
// weight's arithmetic wants them so; scratch takes four unpacked panels.
class QuantizedTokens;
void matmul_panels(const Matmul& op, int i, int64_t first, int64_t last, const QuantizedTokens& x, std::byte* scratch);

}  // namespace ridge::cpu::RIDGE_ISA_NS
