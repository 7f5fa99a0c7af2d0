// Weights and tables as the kernels want them: what there is a unit for (lib/unit.h) keeps its codes, everything else is decoded and kept as bf16; in the f32 check
// mode all of it is f32.
#pragma once
#include <functional>

#include "backend/op.h"
#include "cuda/upload.h"

namespace ridge::cuda {

class WeightStore {
 public:
  // `allocate`: memory of the device that stays.
  WeightStore(cudaStream_t stream, bool check_f32, std::function<std::byte*(int64_t)> allocate) : uploader_(stream), stream_(stream), check_f32_(check_f32), allocate_(std::move(allocate)) {}

  Weight prepare(const StoredWeight& stored, Arithmetic arithmetic);
  Weight prepare_table(const StoredWeight& stored);

 private:
  Tensor upload_decoded(const StoredWeight& stored);
  Tensor upload_row_scales(const Tensor& scales);

  Uploader uploader_;
  cudaStream_t stream_;
  bool check_f32_;
  std::function<std::byte*(int64_t)> allocate_;
};

}  // namespace ridge::cuda
