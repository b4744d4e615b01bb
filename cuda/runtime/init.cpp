// What happens when the library is loaded.
#include "tapegrad/cuda/kernel_table.h"
#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda {
void register_storage();
void register_interface();
// cuda/libraries/, which the simulation goes without.
__attribute__((weak, visibility("default"))) void register_products();
}  // namespace tapegrad::cuda

int tapegrad_cuda_init() {
  tapegrad::cuda::register_storage();
  tapegrad::cuda::register_interface();
  tapegrad::cuda::fill_kernel_table();
  if (tapegrad::cuda::register_products != nullptr) tapegrad::cuda::register_products();
  return tapegrad::cuda::device_count();
}
