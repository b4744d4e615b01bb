#include "tapegrad/cuda/runtime/architecture.h"
#include "tapegrad/cuda/runtime/check.h"
#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda {
namespace {

__global__ void write_architecture(int* out) {
#if defined(__CUDA_ARCH__)
  *out = __CUDA_ARCH__ / 10;
#else
  (void)out;
#endif
}

}  // namespace

int running_architecture(int device) {
  Driver& machine = driver();
  const int before = machine.current_device();
  machine.set_device(device);
  int* on_device = nullptr;
  int architecture = 0;
  TG_CUDA_CHECK(cudaMalloc(&on_device, sizeof(int)));
  write_architecture<<<1, 1>>>(on_device);
  const cudaError_t launched = cudaGetLastError();
  const cudaError_t copied = cudaMemcpy(&architecture, on_device, sizeof(int), cudaMemcpyDeviceToHost);
  (void)cudaFree(on_device);
  machine.set_device(before);
  TG_CUDA_CHECK(launched);
  TG_CUDA_CHECK(copied);
  return architecture;
}

}  // namespace tapegrad::cuda
