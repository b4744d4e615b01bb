// The numbers alpha and beta of products.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The number converted to the dtype: for integers its fraction is dropped, as in PyTorch. Raises Runtime if it does not
// fit.
Scalar product_factor(const char* op, const char* name, const Scalar& value, DType dtype);

}  // namespace tapegrad
