#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda {

#if defined(__CUDACC__)
void throw_launch(cudaError_t status) {
  TG_THROW(Runtime, "cuda: a kernel could not be started: {} ({})", cudaGetErrorString(status),
           cudaGetErrorName(status));
}
#endif

}  // namespace tapegrad::cuda
