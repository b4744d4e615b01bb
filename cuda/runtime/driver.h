// The few things the CUDA backend asks of the machine, behind an interface, so that every rule built on them
// is tested without a GPU on a fake. `cuda_driver()` is the real one: the CUDA runtime, created on first use,
// alive until the process ends. All functions may be called from any thread; the current device belongs to
// the calling thread. Failures of the CUDA runtime are raised as tapegrad::Error with its own text.
#pragma once

#include <cstddef>
#include <string>

#include "tapegrad/c10/macros.h"

namespace tapegrad::cuda {

struct MemoryInfo {
  std::size_t free = 0;
  std::size_t total = 0;
};

struct DeviceProperties {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  std::size_t total_memory = 0;
};

class TG_API Driver {
 public:
  virtual ~Driver() = default;
  virtual int device_count() = 0;  // 0 where there is no driver or no device; never raises
  virtual int current_device() = 0;
  virtual void set_device(int device) = 0;
  virtual MemoryInfo memory_info(int device) = 0;
  virtual DeviceProperties properties(int device) = 0;
};

TG_API Driver& cuda_driver();

// The architecture of the code that device `device` runs from this library, as __CUDA_ARCH__ / 10 (90 for
// sm_90): what tells "the binary fits this device" from "it was built for others". Raises where nothing fits.
TG_API int running_architecture(int device);

}  // namespace tapegrad::cuda

// What the Python package calls when it loads libtapegrad_cuda: the number of usable devices.
extern "C" TG_API int tapegrad_cuda_init();
