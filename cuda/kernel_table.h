// The CUDA column of the kernel table.
#pragma once

#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda {

// Called once, when the library is loaded.
TG_API void fill_kernel_table();

}  // namespace tapegrad::cuda
