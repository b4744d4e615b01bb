// Initialisation when the library is loaded.
#include "tapegrad/cuda/kernel_table.h"
#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda {
void register_storage();
void register_interface();
void register_chains();
// cuda/libraries/, which the simulation goes without but for NCCL. In the library of a card each must be there, or it
// does not link, but cuFFT's, which builds without its header go without.
#define TG_WEAK __attribute__((weak, visibility("default")))
#ifdef TG_CUDA_SIMULATED
#define TG_LIBRARY TG_WEAK
#else
#define TG_LIBRARY
#endif
TG_LIBRARY void register_products();
TG_LIBRARY void register_cudnn();
TG_WEAK void register_fft();
TG_LIBRARY void register_solver();
TG_LIBRARY void register_nccl();
#undef TG_LIBRARY
#undef TG_WEAK
}  // namespace tapegrad::cuda

int tapegrad_cuda_init() {
  tapegrad::cuda::register_storage();
  tapegrad::cuda::register_interface();
  tapegrad::cuda::register_chains();
  tapegrad::cuda::fill_kernel_table();
  const auto call_where_there = [](void (*f)()) {
    if (f != nullptr) f();
  };
  call_where_there(&tapegrad::cuda::register_products);
  call_where_there(&tapegrad::cuda::register_cudnn);
  call_where_there(&tapegrad::cuda::register_fft);
  call_where_there(&tapegrad::cuda::register_solver);
  call_where_there(&tapegrad::cuda::register_nccl);
  return tapegrad::cuda::device_count();
}
