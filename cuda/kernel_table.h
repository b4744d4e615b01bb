// The CUDA column of the kernel table.
#pragma once

#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda {

// Called once, when the library is loaded.
TG_API void fill_kernel_table();

}  // namespace tapegrad::cuda

// The operators of the table without a CUDA kernel, one per line. For the test that there are none.
extern "C" TG_API const char* tapegrad_cuda_missing_kernels();
