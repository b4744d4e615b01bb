// Our own products in the place of a library of them, and tensors on the device, for tests of what uses that library.
#pragma once

#include <cmath>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/cuda/linalg/product_library.h"

namespace tapegrad::cuda::own_products {

inline int asked = 0;                            // products
inline bool (*takes)(const Product&) = nullptr;  // null: all of them

inline bool take(const Stream& stream, const Product& p) {
  ++asked;
  if (p.mixed != nullptr || p.row_sums != nullptr || (takes != nullptr && !takes(p))) return false;
  product_library = nullptr;
  const auto item = static_cast<int64_t>(element_size(p.dtype));
  const auto nth = [&](const Matrix& m, int64_t i) {
    return Matrix{static_cast<const char*>(m.data) + i * m.batch * item, m.row, m.col};
  };
  for (int64_t i = 0; i < p.batch; ++i)
    gemm(stream, p.dtype, 1, p.m, p.n, p.k, p.alpha, nth(p.a, i), nth(p.b, i), p.beta,
         static_cast<char*>(p.c) + i * (p.c_batch == 0 ? p.m * p.n : p.c_batch) * item);
  product_library = &take;
  return true;
}

// What f gives with this library.
template <class F>
auto with_products(const F& f) {
  asked = 0;
  product_library = &take;
  const auto result = f();
  product_library = nullptr;
  return result;
}

inline Tensor filled(IntSpan sizes, DType dtype, int64_t seed, float divisor = 24) {
  const Tensor t = empty_tensor(sizes, DType::float32);
  for (int64_t i = 0; i < t.numel(); ++i)
    static_cast<float*>(t.data_ptr())[i] = static_cast<float>((i * 37 + seed * 101) % 61 - 30) / divisor;
  const Tensor there = empty_tensor(TensorSpec{sizes, dtype, Device(DeviceType::CUDA, 0), {}});
  there.copy_(to(t, dtype));
  return there;
}

// The largest distance of two elements; NaN where only one has it.
inline double difference(const Tensor& a, const Tensor& b) {
  const auto here = [](const Tensor& t) {
    const Tensor copy = empty_tensor(t.sizes(), DType::float64);
    copy.copy_(t);
    return copy;
  };
  const Tensor x = here(a), y = here(b);
  double most = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double p = static_cast<const double*>(x.data_ptr())[i], q = static_cast<const double*>(y.data_ptr())[i];
    const double d = p == q ? 0 : std::abs(p - q);
    most = d > most || std::isnan(d) ? d : most;
  }
  return most;
}

}  // namespace tapegrad::cuda::own_products
