// TG_CUDA_CHECK(call): raises the CUDA runtime's message if a call fails. For host code of the CUDA backend; the
// message is formatted out of line, so that .cu files do not compile fmt.
#pragma once

#include <cuda_runtime_api.h>

#include "tapegrad/c10/macros.h"

namespace tapegrad::cuda {

[[noreturn]] TG_COLD void throw_cuda_error(cudaError_t status, const char* call);

}  // namespace tapegrad::cuda

#define TG_CUDA_CHECK(call)                                                                          \
  do {                                                                                               \
    const cudaError_t tg_status = (call);                                                            \
    if (TG_UNLIKELY(tg_status != cudaSuccess)) ::tapegrad::cuda::throw_cuda_error(tg_status, #call); \
  } while (false)
