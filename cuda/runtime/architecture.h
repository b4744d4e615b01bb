// Checks whether the library contains code for a device. Not in the simulated library.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad::cuda {

// The architecture of this library's code that device `device` runs, as __CUDA_ARCH__ / 10 (90 for sm_90). Raises if
// there is none.
TG_API int running_architecture(int device);

}  // namespace tapegrad::cuda
