// The kernels' launchers. Each takes an op, the step as the device sees it, and the stream; shapes come from the op's tensors, never from device memory.
#pragma once
#include <cuda_runtime.h>

#include "backend/op.h"
#include "backend/step.h"

namespace ridge::cuda {

struct Launch {
  cudaStream_t stream;
  StepView step;
  int max_context;                           // of the step's sequences, rounded up to a power of two, so that a captured graph stays valid while they grow
  float* attention_scratch;                  // partial results of split attention
  int64_t attention_scratch_bytes;
  std::byte* matmul_scratch;                 // activations in bf16 for many tokens
  int64_t matmul_scratch_bytes;
  int n_sms, max_shared_bytes;               // of the device; shared memory a block may ask for
  int compute_capability;                    // 90: sm_90
  int n_few_rows;                            // at least the rows of sequences with few rows in this step (kernels/flash.h); all rows, or a power of two
};

void embed(const Embed& op, const Launch& launch);
void add_norm(const AddNorm& op, const Launch& launch);
void head_norm(const HeadNorm& op, const Launch& launch);
void rope_angles(const RopeAngles& op, const Launch& launch);
void rope_store(const RopeStore& op, const Launch& launch);
void paged_attention(const PagedAttention& op, const Launch& launch);
void activate(const Activate& op, const Launch& launch);
void gather_rows(const GatherRows& op, const Launch& launch);
void scale_cap(const ScaleCap& op, const Launch& launch);
void matmul(const Matmul& op, const Launch& launch);

// Scratch that paged_attention needs in this step.
int64_t attention_scratch_needed(const PagedAttention& op, const Launch& launch);

// Reads a buffer once, at full width: the bandwidth that the other kernels are compared with.
void read_all(const void* data, int64_t n_bytes);

}  // namespace ridge::cuda
