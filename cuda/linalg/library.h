// A library of matrix products (cuBLASLt; cuda/libraries/) that may be there: gemm asks it first, and does itself what
// it refuses. The library of a simulated device has none, tests put one in.
#pragma once

#include <atomic>

#include "tapegrad/cuda/linalg/gemm.h"

namespace tapegrad::cuda {

// c (m x n, contiguous rows) = alpha * a (m x k) * b (k x n) + beta * c, `batch` times, and `bias` (n values, or null)
// added to each row.
struct Product {
  DType dtype;
  int64_t batch, m, n, k;
  Scalar alpha;
  Matrix a, b;
  Scalar beta;
  void* c;
  const void* bias = nullptr;
};

// Queues the product on the stream, or returns false and has done nothing. Raises where a call of the library fails.
using ProductLibrary = bool (*)(const Stream& stream, const Product& product);
TG_API extern std::atomic<ProductLibrary> product_library;  // null: none

inline bool library_product(const Stream& stream, const Product& product) {
  const ProductLibrary library = product_library.load(std::memory_order_acquire);
  return library != nullptr && library(stream, product);
}

// BLAS reads memory column by column. A matrix of rows x cols as what lies there to it: its transpose (`transposed`
// false), columns `step` elements apart, or itself (true). False where neither dimension is dense.
struct BlasMatrix {
  bool transposed = false;
  int64_t step = 0;
};
inline bool blas_matrix(const Matrix& matrix, int64_t rows, int64_t cols, BlasMatrix& out) {
  if (cols == 1 || matrix.col == 1) {
    out = {false, rows == 1 ? std::max<int64_t>(cols, 1) : matrix.row};
    if (out.step >= cols) return true;
  }
  if (rows == 1 || matrix.row == 1) {
    out = {true, cols == 1 ? std::max<int64_t>(rows, 1) : matrix.col};
    if (out.step >= rows) return true;
  }
  return false;
}

}  // namespace tapegrad::cuda
