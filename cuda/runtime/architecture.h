// What tells "the binary fits this device" from "it was built for others". Not in the simulated library.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad::cuda {

// The architecture of the code that device `device` runs from this library, as __CUDA_ARCH__ / 10 (90 for sm_90).
// Raises where nothing fits.
TG_API int running_architecture(int device);

}  // namespace tapegrad::cuda
