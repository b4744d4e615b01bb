// Finds the device of memory from other libraries. Not part of driver.h, since it is needed only for foreign memory.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad::cuda {

// The device of an address; -1: none, or memory unknown to CUDA.
TG_API int device_of_address(const void* p);

}  // namespace tapegrad::cuda
