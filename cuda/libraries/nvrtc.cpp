// Kernels that NVRTC compiles. They are never unloaded: graphs may hold them, and what was queued may not have run.
#include "tapegrad/cuda/record/nvrtc.h"

#include <cuda_runtime_api.h>

#include "tapegrad/cuda/libraries/library.h"
#include "tapegrad/cuda/runtime/check.h"
#include "tapegrad/cuda/runtime/driver.h"
#include "tapegrad/cuda/runtime/kernel_compiler.h"

namespace tapegrad::cuda {

namespace {

class LoadedKernel final : public SourceKernel {
 public:
  explicit LoadedKernel(cudaKernel_t kernel) : kernel_(kernel) {}
  void launch(const Stream& stream, uint32_t blocks, uint32_t threads, const void* argument, size_t) const override {
    void* arguments[] = {const_cast<void*>(argument)};
    TG_CUDA_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel_), dim3(blocks), dim3(threads), arguments, 0,
                                   static_cast<cudaStream_t>(stream.handle)));
  }

 private:
  cudaKernel_t kernel_;
};

}  // namespace

bool compiles_kernels() { return true; }

std::shared_ptr<const SourceKernel> compile_kernel(int device, const char* name, const std::string& text,
                                                   std::span<const SourceFile> headers) {
  int major = 0, minor = 0;
  TG_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  TG_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  const std::string code =
      compile_cubin([](const char* s) { return nvrtc().symbol(s); }, major * 10 + minor, text, headers);
  const DeviceGuard guard(device);
  const RelaxedCapture relaxed;
  cudaLibrary_t library = nullptr;
  TG_CUDA_CHECK(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  cudaKernel_t kernel = nullptr;
  TG_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library, name));
  // Loads it for this device, which a capture must not.
  cudaFuncAttributes ignored;
  TG_CUDA_CHECK(cudaFuncGetAttributes(&ignored, reinterpret_cast<const void*>(kernel)));
  return std::make_shared<LoadedKernel>(kernel);
}

}  // namespace tapegrad::cuda
