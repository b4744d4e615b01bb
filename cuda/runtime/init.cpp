// What happens when the library is loaded.
#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda {
void register_storage();
}

int tapegrad_cuda_init() {
  tapegrad::cuda::register_storage();
  return tapegrad::cuda::device_count();
}
