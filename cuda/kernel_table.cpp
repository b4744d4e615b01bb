// Fills the CUDA column of the kernel table.
#include "tapegrad/cuda/kernel_table.h"

#include "tapegrad/aten/copy/across.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/optim/fused.h"
#include "tapegrad/cuda/sparse/coo.h"

namespace tapegrad {

namespace cuda::detail {
template <class F>
using Function = F;  // declares a function of a type that is written as one
}

#define TG_CUDA_KERNEL(op, kernel, ...)        \
  namespace entries {                          \
  extern TG_API OperatorEntry op;              \
  }                                            \
  namespace cuda {                             \
  extern detail::Function<__VA_ARGS__> kernel; \
  }
#include "tapegrad/cuda/kernel_list.inc"
#undef TG_CUDA_KERNEL

namespace cuda {

void fill_kernel_table() {
#define TG_CUDA_KERNEL(op, kernel, ...) \
  entries::op.kernels[static_cast<int>(DeviceType::CUDA)] = reinterpret_cast<AnyKernel>(&kernel);
#include "tapegrad/cuda/kernel_list.inc"
#undef TG_CUDA_KERNEL
  copy_across.store(&copy_any);
  sparse::check_indices.store(&record_out_of_bounds);
  set_optimizer_steps();
}

}  // namespace cuda

}  // namespace tapegrad
