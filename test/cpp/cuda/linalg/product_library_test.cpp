// What a library of matrix products is told, and that it is asked first.
#include "tapegrad/cuda/linalg/product_library.h"
#include "tapegrad/aten/functions.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace tapegrad;
using cuda::blas_matrix;
using cuda::BlasMatrix;
using cuda::Matrix;
using cuda::Product;
using cuda::product_library;

TEST_CASE("A matrix with a dense dimension is its transpose to BLAS, or itself", "[cuda]") {
  const int64_t sizes[] = {1, 2, 5};
  for (int64_t rows : sizes)
    for (int64_t cols : sizes)
      for (int64_t row : {int64_t{0}, int64_t{1}, cols, cols + 3, rows, rows + 2})
        for (int64_t col : {int64_t{0}, int64_t{1}, cols, rows, rows + 2}) {
          const Matrix matrix{nullptr, row, col};
          BlasMatrix seen;
          const bool dense = blas_matrix(matrix, rows, cols, seen);
          const bool by_rows = (cols == 1 || col == 1) && (rows == 1 || row >= cols);
          const bool by_columns = (rows == 1 || row == 1) && (cols == 1 || col >= rows);
          REQUIRE(dense == (by_rows || by_columns));
          if (!dense) continue;
          REQUIRE(seen.step >= (seen.transposed ? rows : cols));  // what BLAS asks of a leading dimension
          for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < cols; ++j)
              REQUIRE((seen.transposed ? i + j * seen.step : j + i * seen.step) == i * row + j * col);
        }
}

namespace {
std::vector<Product> asked;
bool take(const cuda::Stream&, const Product& product) {
  asked.push_back(product);
  return true;
}
}  // namespace

TEST_CASE("gemm asks the library first and leaves to it what it takes", "[cuda]") {
  asked.clear();
  product_library = &take;
  const float a[6] = {}, b[12] = {};
  float c[8] = {};
  // Were it not taken, a kernel would be started on a device that is not there.
  cuda::gemm({}, DType::float32, 1, 2, 4, 3, 2.0, {a, 3, 1}, {b, 1, 3}, 0.5, c);
  cuda::gemm({}, DType::float32, 1, 0, 4, 3, 2.0, {a, 3, 1}, {b, 1, 3}, 0.5, c);  // nothing to do
  product_library = nullptr;
  REQUIRE(asked.size() == 1);
  const Product& p = asked[0];
  CHECK((p.batch == 1 && p.m == 2 && p.n == 4 && p.k == 3 && p.c == c && p.bias == nullptr));
  CHECK((p.alpha == Scalar(2.0) && p.beta == Scalar(0.5) && p.dtype == DType::float32));
  CHECK((p.a.data == a && p.a.row == 3 && p.b.data == b && p.b.col == 3));
}
