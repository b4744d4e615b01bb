// Memory of others that must not be written to: read-only arrays and shared memory, and vmap's copies of tensors whose
// elements share memory.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Raises Runtime for memory that is read-only.
inline void check_writable(const char* op, const Tensor& t) {
  TG_CHECK(!t.impl()->storage()->read_only(), Runtime,
           "{}: the memory of the tensor to write to is read-only\nhint: write to a clone() of it", op);
}

}  // namespace tapegrad
