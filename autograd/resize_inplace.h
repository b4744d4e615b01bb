// In-place operators that give a tensor other sizes or other memory.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::autograd {

// Makes `self` a view of `storage`, which grows if sizes and strides reach beyond it. Errors are raised before anything
// is changed. Needs exclusive use of both.
TG_API void set_over(const Tensor& self, const Storage& storage, IntSpan sizes, IntSpan strides, int64_t offset);

}  // namespace tapegrad::autograd
