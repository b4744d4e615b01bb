// What happens when the library is loaded.
#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda {
void register_storage();
void register_interface();
}  // namespace tapegrad::cuda

int tapegrad_cuda_init() {
  tapegrad::cuda::register_storage();
  tapegrad::cuda::register_interface();
  return tapegrad::cuda::device_count();
}
