// Operators that order elements accept a zero-dimensional tensor of any dtype, since its one element is always in
// order.
#pragma once

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Whether elements of this dtype have an order, or there are none (`may_be_empty`) or only one of them.
inline void check_ordered(const Tensor& input, const char* op, bool may_be_empty = false) {
  TG_CHECK(!input.is_complex() || input.ndim() == 0 || (may_be_empty && input.numel() == 0), NotImplemented,
           "{}: complex numbers have no order: got {}", op, input.dtype());
}

// Writes the one element of a tensor without dimensions, and its index 0. False for other tensors.
inline bool wrote_only_element(const Tensor& input, const Tensor& values, const Tensor& indices) {
  if (input.ndim() != 0) return false;
  raw::copy_(values, input);
  raw::zero_(indices);
  return true;
}

}  // namespace tapegrad
