// Where memory lies that others hand over. Beside the driver's own interface (driver.h), since only that memory has to
// be asked about: ours says itself where it is.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad::cuda {

// On which device an address lies; -1: on none, or of memory that CUDA does not know.
TG_API int device_of_address(const void* p);

}  // namespace tapegrad::cuda
