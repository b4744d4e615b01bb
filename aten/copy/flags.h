// Tensors of bool whose bytes may be others than 0 and 1 (aten/iterate/convert/stored.h), for kernels that compare,
// count or sort.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The tensor itself, unless it is of bool and has such bytes: then a copy of zeros and ones. For tensors on other
// devices, whose bytes are not read, always a copy.
TG_API Tensor clean_flags(const Tensor& t);

}  // namespace tapegrad
