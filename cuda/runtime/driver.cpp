#include "tapegrad/cuda/runtime/driver.h"

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/runtime/check.h"

namespace tapegrad::cuda {
namespace {

// Puts the calling thread's device back when a scope ends.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    TG_CUDA_CHECK(cudaGetDevice(&before_));
    if (device != before_) TG_CUDA_CHECK(cudaSetDevice(device));
  }
  ~DeviceGuard() { (void)cudaSetDevice(before_); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
};

class RuntimeDriver final : public Driver {
 public:
  int device_count() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
      (void)cudaGetLastError();
      return 0;
    }
    return count;
  }

  int current_device() override {
    int device = 0;
    TG_CUDA_CHECK(cudaGetDevice(&device));
    return device;
  }

  void set_device(int device) override {
    check_index(device);
    TG_CUDA_CHECK(cudaSetDevice(device));
  }

  MemoryInfo memory_info(int device) override {
    check_index(device);
    DeviceGuard guard(device);
    MemoryInfo info;
    TG_CUDA_CHECK(cudaMemGetInfo(&info.free, &info.total));
    return info;
  }

  DeviceProperties properties(int device) override {
    check_index(device);
    cudaDeviceProp p;
    TG_CUDA_CHECK(cudaGetDeviceProperties(&p, device));
    return {p.name, p.major, p.minor, p.multiProcessorCount, p.totalGlobalMem};
  }

 private:
  void check_index(int device) {
    const int count = device_count();
    TG_CHECK(device >= 0 && device < count, Runtime, "cuda: device index out of range: cuda:{} of {}", device, count);
  }
};

}  // namespace

void throw_cuda_error(cudaError_t status, const char* call) {
  (void)cudaGetLastError();  // it would surface again at an innocent call
  TG_THROW(Runtime, "cuda: {}: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
}

Driver& cuda_driver() {
  static RuntimeDriver driver;
  return driver;
}

}  // namespace tapegrad::cuda

int tapegrad_cuda_init() { return tapegrad::cuda::cuda_driver().device_count(); }
