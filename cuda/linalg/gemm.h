// Matrix products on the memory of a device, for every numeric type and any strides; 16-bit types accumulate in float.
#pragma once

#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda {

// Element (i, j) of matrix b is at data[b * batch + i * row + j * col].
struct Matrix {
  const void* data;
  int64_t row, col, batch = 0;
};

// c (m x n, contiguous rows of n, one after the other) = alpha * a (m x k) * b (k x n) + beta * c, `batch` times; c is
// not read when beta is 0.
TG_API void gemm(const Stream& stream, DType dtype, int64_t batch, int64_t m, int64_t n, int64_t k, const Scalar& alpha,
                 const Matrix& a, const Matrix& b, const Scalar& beta, void* c);

}  // namespace tapegrad::cuda
