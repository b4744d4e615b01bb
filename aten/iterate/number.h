// Conversion of the caller's numbers to elements: PyTorch's rule for which numbers a dtype accepts, defined here only.
// Pure functions.
#pragma once

#include "tapegrad/c10/tensor/scalar.h"

namespace tapegrad {

// Whether a conversion keeps the number as far as the dtype can: integers take what lies between their limits, with or
// without a fraction, and unsigned ones negative integers that wrap; floating dtypes take infinities, NaN and what
// rounds to no infinity; only complex dtypes take an imaginary part. bool takes all.
TG_API bool number_fits(const Scalar& number, DType dtype);

// Error(Runtime) where it does not. Small integers, the usual defaults, cost a comparison.
TG_API void check_number_fits(const char* op, const Scalar& number, DType dtype);
inline void check_number(const char* op, const Scalar& number, DType dtype) {
  if (number.kind() == Scalar::Kind::Bool || (number.kind() == Scalar::Kind::Int && number == Scalar(1))) return;
  check_number_fits(op, number, dtype);
}

}  // namespace tapegrad
