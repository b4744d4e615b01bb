// The numbers alpha and beta of products.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The number as one of the dtype: for integers without its fraction, as PyTorch's. Raises Runtime where it does not
// fit.
Scalar product_factor(const char* op, const char* name, const Scalar& value, DType dtype);

}  // namespace tapegrad
