// The interface to an optional library of matrix products (cuBLASLt; cuda/libraries/): gemm tries it first, and
// computes itself what the library refuses. A simulated device has none; tests install a double.
#pragma once

#include <atomic>

#include "tapegrad/cuda/linalg/gemm.h"

namespace tapegrad::cuda {

// Where the float32 numbers by which a factor of float8 is multiplied lie, and how many it has: one; one for each line
// (row of a, column of b); one for 128 numbers of a line, lines next to each other; one for 128 x 128 numbers, those of
// one block of lines next to each other, from block to block a multiple of 4.
enum class Scales : uint8_t { none, one, lines, parts, tiles };

// What a product has whose matrices differ in dtype.
struct MixedProduct {
  DType b, c;  // the bias is of c's, or bfloat16 where that is float32
  Scales a_kind = Scales::none, b_kind = Scales::none;
  const void* a_scales = nullptr;
  const void* b_scales = nullptr;
  bool fast = false;  // float8: sums in fewer bits
};

// c (m x n, contiguous rows) = alpha * a (m x k) * b (k x n) + beta * c, `batch` times, and `bias` (n values, or null)
// added to each row. c_batch: elements from product to product of c; 0: m * n. mixed: null where all are of `dtype`,
// which is a's otherwise. row_sums: null, or where the sums of a's rows go, m values (then there is no bias).
struct Product {
  DType dtype;
  int64_t batch, m, n, k;
  Scalar alpha;
  Matrix a, b;
  Scalar beta;
  void* c;
  const void* bias = nullptr;
  int64_t c_batch = 0;
  const MixedProduct* mixed = nullptr;
  void* row_sums = nullptr;
};

// Queues the product on the stream, or returns false without any effect. Raises if a call of the library fails.
using ProductLibrary = bool (*)(const Stream& stream, const Product& product);
TG_API extern std::atomic<ProductLibrary> product_library;  // null: none

// By the library, if there is one; large matrices for 16-bit and TF32 products are copied to rows as it likes them
// (aligned_product.cu).
TG_API bool library_product(const Stream& stream, const Product& product);

// BLAS is column-major. Describes a matrix of rows x cols as BLAS sees its memory: as its transpose (`transposed`
// false), with columns `step` elements apart, or as itself (true). False if neither dimension is dense.
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
