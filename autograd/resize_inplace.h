// In-place operators that give a tensor other sizes or other memory.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::autograd {

// Makes `self` see `storage`, which grows where sizes and strides reach beyond it. What is wrong is found before
// anything is changed. Needs exclusive use of both.
TG_API void set_over(const Tensor& self, const Storage& storage, IntSpan sizes, IntSpan strides, int64_t offset);

}  // namespace tapegrad::autograd
