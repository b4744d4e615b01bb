// In-place operators that give every element the same value (`one_value` in the op table): elements of what they write
// to may share memory, as those of an expanded tensor do.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::autograd {

// check_inplace (node.h) without its check of overlap.
TG_API void check_filled(const Tensor& self, const char* op, bool recording);

}  // namespace tapegrad::autograd
