// The ops of `ref`, one function each, and the rows of the weights it prepared. Those that do not follow the step ignore it.
#pragma once
#include "backend/op.h"
#include "backend/step.h"
#include "base/check.h"

namespace ridge::ref {

// Row r of a weight that `ref` prepared, as floats: a row of its decoded copy, or decoded now into `buffer` [cols].
const float* weight_row(float* buffer, const Weight& weight, int64_t r);

void run(const Embed& op, const Step& step);
void run(const AddNorm& op, const Step& step);
void run(const HeadNorm& op, const Step& step);
void run(const Matmul& op, const Step& step);
void run(const RopeAngles& op, const Step& step);
void run(const RopeStore& op, const Step& step);
void run(const PagedAttention& op, const Step& step);
void run(const Activate& op, const Step& step);
void run(const GatherRows& op, const Step& step);
void run(const ScaleCap& op, const Step& step);

}  // namespace ridge::ref
