// What stands in for the backend in a build without CUDA.
#include "base/error.h"
#include "cuda/cuda_backend.h"

namespace ridge {
namespace {
constexpr const char* kReason = "this build has no CUDA (build again where nvcc is installed, or with -DRIDGE_CUDA=ON)";
}

std::string cuda_unavailable_reason() { return kReason; }
std::string cuda_device_description() { return ""; }
int64_t cuda_free_bytes() { return 0; }
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions&) { fail("--device cuda: {}", kReason); }
void cuda_copy(std::byte*, const std::byte*, int64_t) { fail("--device cuda: {}", kReason); }
double measure_cuda_read_bandwidth() { return 0; }
double measure_cuda_read_in_turn(int64_t) { return 0; }

}  // namespace ridge
