// The ops of `ref`, one function each, and the rows of the weights it prepared. Those that do not follow the step ignore it.
#pragma once
#include "backend/op.h"
#include "backend/step.h"
#include "base/check.h"

namespace ridge::ref {

// Row r of a weight that `ref` prepared, as floats: a row of its decoded copy, or decoded now into `buffer` [cols].
const float* weight_row(float* buffer, const Weight& weight, int64_t r);

// Entry i (a position, where every position has one) of a plane of a sequence's KV.
std::byte* kv_row(const KvRef& kv, int plane, const Step& step, const StepSeq& seq, int64_t i);
// In place: n_rot numbers from `x` on, by cosines and then sines [2, n_freqs].
void rotate(float* x, const float* angles, int64_t n_freqs, int n_rot, RopeStyle style, bool back);

void run(const Embed& op, const Step& step);
void run(const AddNorm& op, const Step& step);
void run(const HeadNorm& op, const Step& step);
void run(const AddScaled& op, const Step& step);
void run(const ScaleByPosition& op, const Step& step);
void run(const Matmul& op, const Step& step);
void run(const HeadMatmul& op, const Step& step);
void run(const RopeAngles& op, const Step& step);
void run(const RopeStore& op, const Step& step);
void run(const PagedAttention& op, const Step& step);
void run(const IndexTopK& op, const Step& step);
void run(const CompressKv& op, const Step& step);
void run(const Activate& op, const Step& step);
void run(const MoeRoute& op, const Step& step);
void run(const MoeMatmul& op, const Step& step);
void run(const MoeCombine& op, const Step& step);
void run(const ShortConv& op, const Step& step);
void run(const LinearScan& op, const Step& step);
void run(const SelectiveScan& op, const Step& step);
void run(const HyperEnter& op, const Step& step);
void run(const HyperLeave& op, const Step& step);
void run(const GatherRows& op, const Step& step);
void run(const ScaleCap& op, const Step& step);

}  // namespace ridge::ref
