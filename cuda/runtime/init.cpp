// Initialisation when the library is loaded.
#include "tapegrad/cuda/kernel_table.h"
#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda {
void register_storage();
void register_interface();
void register_chains();
// cuda/libraries/, which the simulation goes without; of some, builds without their headers do, too.
#define TG_OPTIONAL __attribute__((weak, visibility("default")))
TG_OPTIONAL void register_products();
TG_OPTIONAL void register_cudnn();
TG_OPTIONAL void register_fft();
TG_OPTIONAL void register_solver();
TG_OPTIONAL void register_nccl();  // the simulation has one, too
#undef TG_OPTIONAL
}  // namespace tapegrad::cuda

int tapegrad_cuda_init() {
  tapegrad::cuda::register_storage();
  tapegrad::cuda::register_interface();
  tapegrad::cuda::register_chains();
  tapegrad::cuda::fill_kernel_table();
  if (tapegrad::cuda::register_products != nullptr) tapegrad::cuda::register_products();
  if (tapegrad::cuda::register_cudnn != nullptr) tapegrad::cuda::register_cudnn();
  if (tapegrad::cuda::register_fft != nullptr) tapegrad::cuda::register_fft();
  if (tapegrad::cuda::register_solver != nullptr) tapegrad::cuda::register_solver();
  if (tapegrad::cuda::register_nccl != nullptr) tapegrad::cuda::register_nccl();
  return tapegrad::cuda::device_count();
}
