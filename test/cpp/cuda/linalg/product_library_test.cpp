// What a library of matrix products is told, and that it is asked first.
#include "cuda/linalg/products.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/float32_precision.h"
#include "tapegrad/cuda/kernel_table.h"
#include "tapegrad/cuda/runtime/driver.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace tapegrad;
using cuda::blas_matrix;
using cuda::BlasMatrix;
using cuda::Matrix;
using cuda::Product;
using cuda::product_library;
using cuda::own_products::difference;
using cuda::own_products::filled;

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

namespace {

// A library that computes on the host, and notes whether rows, columns and depth were multiples of 16 bytes.
bool unaligned_seen = false, padding_seen = false;
int64_t columns_wanted = 0;
template <class T>
void multiply_on_host(const Product& p) {
  const auto* x = static_cast<const T*>(p.a.data);
  const auto* y = static_cast<const T*>(p.b.data);
  const auto* bias = static_cast<const T*>(p.bias);
  auto* z = static_cast<T*>(p.c);
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      float sum = bias == nullptr ? 0 : static_cast<float>(bias[j]);
      for (int64_t l = 0; l < p.k; ++l)
        sum += static_cast<float>(x[i * p.a.row + l * p.a.col]) * static_cast<float>(y[l * p.b.row + j * p.b.col]);
      z[i * p.n + j] = T(sum);
    }
}
bool take_aligned(const cuda::Stream& stream, const Product& p) {
  BlasMatrix a, b;
  REQUIRE((blas_matrix(p.a, p.m, p.k, a) && blas_matrix(p.b, p.k, p.n, b)));
  const int64_t pack = 16 / static_cast<int64_t>(element_size(p.dtype));
  for (const int64_t size : {a.step, b.step, p.n, p.k}) unaligned_seen |= size % pack != 0;
  padding_seen |= p.n != columns_wanted;
  const cuda::simulated::HostAccess access(stream.handle);
  if (p.dtype == DType::float32)
    multiply_on_host<float>(p);
  else
    multiply_on_host<BFloat16>(p);
  return true;
}

struct Sizes {
  int64_t m, n, k;
};

// One that adds up rows, too, and refuses all else.
int sums_asked = 0;
bool take_with_sums(const cuda::Stream& stream, const Product& p) {
  if (p.row_sums == nullptr || p.k == 0) return false;
  REQUIRE((p.bias == nullptr && p.beta == Scalar(0)));
  ++sums_asked;
  const cuda::simulated::HostAccess access(stream.handle);
  const auto sums = [&]<class T>(T*) {
    multiply_on_host<T>(p);
    for (int64_t i = 0; i < p.m; ++i) {
      float sum = 0;
      for (int64_t l = 0; l < p.k; ++l)
        sum += static_cast<float>(static_cast<const T*>(p.a.data)[i * p.a.row + l * p.a.col]);
      static_cast<T*>(p.row_sums)[i] = T(sum);
    }
  };
  if (p.dtype == DType::float32)
    sums(static_cast<float*>(nullptr));
  else
    sums(static_cast<BFloat16*>(nullptr));
  return true;
}

}  // namespace

TEST_CASE("The gradient of a bias comes with that of the weight", "[cuda]") {
  REQUIRE(tapegrad_cuda_init() > 0);
  const bool allowed = allow_tf32();
  for (const DType dtype : {DType::bfloat16, DType::float32})
    for (const bool tf32 : {false, true})
      for (const Sizes& s : {Sizes{16, 24, 40}, Sizes{16, 24, 33}, Sizes{12, 24, 40}, Sizes{15, 24, 40},
                             Sizes{16, 23, 40}, Sizes{16, 24, 0}})
        for (const bool turned : {false, true}) {
          CAPTURE(dtype_name(dtype), tf32, s.m, s.n, s.k, turned);
          set_allow_tf32(tf32);
          const Tensor grad =
              turned ? transpose(filled(DimVector{s.m, s.k}, dtype, 1), 0, 1) : filled(DimVector{s.k, s.m}, dtype, 1);
          const Tensor input = filled(DimVector{s.k, s.n}, dtype, 2);
          const auto [own_weight, own_bias] = raw::_linear_parameter_grads(grad, input);
          sums_asked = 0;
          product_library = &take_with_sums;
          const auto [weight, bias] = raw::_linear_parameter_grads(grad, input);
          product_library = nullptr;
          const int64_t pack = 16 / static_cast<int64_t>(element_size(dtype));
          CHECK(sums_asked == (s.m % pack == 0 && s.n % pack == 0 && !(tf32 && dtype == DType::float32) && s.k > 0));
          CHECK(difference(own_weight, weight) < (dtype == DType::float32 ? 1e-4 : 0.1));
          CHECK(difference(own_bias, bias) < (dtype == DType::float32 ? 1e-4 : 0.1));
        }
  set_allow_tf32(allowed);
}

TEST_CASE("Large matrices for 16-bit and TF32 products are copied to multiples of 16 bytes", "[cuda]") {
  REQUIRE(tapegrad_cuda_init() > 0);
  const bool allowed = allow_tf32();
  set_allow_tf32(true);
  for (const DType dtype : {DType::bfloat16, DType::float32})
    for (const Sizes& s : {Sizes{257, 259, 261}, {264, 257, 256}, {256, 264, 259}, {257, 264, 264}, {264, 256, 272}})
      for (const bool a_transposed : {false, true})
        for (const int b_kind : {0, 1, 2}) {  // as it lies, transposed, and the weight of a linear layer with a bias
          CAPTURE(dtype_name(dtype), s.m, s.n, s.k, a_transposed, b_kind);
          const Tensor a = a_transposed ? transpose(filled(DimVector{s.k, s.m}, dtype, 1, 240), 0, 1)
                                        : filled(DimVector{s.m, s.k}, dtype, 1, 240);
          const Tensor b = b_kind == 0 ? filled(DimVector{s.k, s.n}, dtype, 2, 240)
                                       : transpose(filled(DimVector{s.n, s.k}, dtype, 2, 240), 0, 1);
          const Tensor bias = b_kind == 2 ? filled(DimVector{s.n}, dtype, 3, 240) : Tensor();
          const auto multiply = [&] { return b_kind == 2 ? linear(a, transpose(b, 0, 1), bias) : matmul(a, b); };
          const Tensor own = multiply();
          unaligned_seen = padding_seen = false;
          columns_wanted = s.n;
          product_library = &take_aligned;
          const Tensor by_library = multiply();
          product_library = nullptr;
          CHECK(!unaligned_seen);
          CHECK(padding_seen == (s.n * static_cast<int64_t>(element_size(dtype)) % 16 != 0));
          CHECK(difference(own, by_library) < (dtype == DType::float32 ? 1e-4 : 0.02));
        }
  set_allow_tf32(allowed);
}
