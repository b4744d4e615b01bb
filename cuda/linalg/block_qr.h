// Householder reflections H = I - tau v v^H, v[0] = 1, as LAPACK stores them, by the threads of a block: a warp per
// column that a reflection is applied to. All threads of the block must call these functions, which end with a barrier.
#pragma once

#include "tapegrad/cuda/linalg/matrices.h"

namespace tapegrad::cuda {

struct SumOf {
  template <class T>
  TG_DEVICE T operator()(const T& a, const T& b) const {
    return math::add(a, b);
  }
};

// Columns [first, cols) of c, from row j on, times I - tau v v^H; v lies below the diagonal of column j of a.
template <class T>
TG_DEVICE void block_reflect(const T* v, int64_t j, int64_t m, const T& tau, T* c, int64_t ldc, int64_t first,
                             int64_t cols) {
  const int64_t warps = block_size() / kWarp;
  for (int64_t k = first + warp_index(); k < cols; k += warps) {
    T* column = c + k * ldc;
    T sum = warp_lane() == 0 ? column[j] : T(0);
    for (int64_t i = j + 1 + warp_lane(); i < m; i += kWarp)
      sum = math::add(sum, math::mul(math::conj(v[i]), column[i]));
    sum = math::mul(tau, warp_reduce(sum, SumOf()));
    if (warp_lane() == 0) column[j] = math::sub(column[j], sum);
    for (int64_t i = j + 1 + warp_lane(); i < m; i += kWarp) column[i] = minus_product(column[i], v[i], sum);
  }
  block_sync();
}

// The reflection that makes x[j...m) a multiple beta of its first element: v[j] = 1 is not stored, and x[j] is left as
// it is. Returns whether there is one to apply; beta is real.
template <class T>
TG_DEVICE bool block_reflection(T* x, int64_t j, int64_t m, T& tau, real_t<T>& beta, real_t<T>* scratch) {
  using R = real_t<T>;
  const T alpha = x[j];
  // The norm of what is below, scaled so that squares neither overflow nor vanish.
  R largest = 0;
  for (int64_t i = j + 1 + thread_index(); i < m; i += block_size()) {
    const R size = math::abs(x[i]);
    largest = size > largest || size != size ? size : largest;
  }
  largest = block_reduce(largest, Largest(), scratch);
  R sum = 0;
  if (largest > 0)
    for (int64_t i = j + 1 + thread_index(); i < m; i += block_size()) {
      const R size = math::abs(x[i]) / largest;
      sum += size * size;
    }
  block_sync();  // the scratch is free again
  const R below = largest * std::sqrt(block_reduce(sum, Sum(), scratch));
  block_sync();  // all have read
  tau = T(0);
  beta = real_part(alpha);
  if (below == 0 && imag_part(alpha) == 0) return false;
  beta = -std::copysign(math::hypot(math::abs(alpha), below), real_part(alpha));
  if constexpr (is_complex_type<T>)
    tau = {(beta - alpha.real()) / beta, -alpha.imag() / beta};
  else
    tau = (beta - alpha) / beta;
  const T scale = math::div(T(1), math::sub(alpha, T(beta)));
  for (int64_t i = j + 1 + thread_index(); i < m; i += block_size()) x[i] = math::mul(scale, x[i]);
  block_sync();
  return true;
}

// a (m x n) = Q R, reflections below the diagonal and in tau.
template <class T>
TG_DEVICE void block_qr(T* a, int64_t ld, int64_t m, int64_t n, T* tau, real_t<T>* scratch) {
  for (int64_t j = 0; j < m && j < n; ++j) {
    T* column = a + j * ld;
    T factor;
    real_t<T> beta;
    const bool reflects = block_reflection(column, j, m, factor, beta, scratch);
    if (thread_index() == 0) {
      column[j] = T(beta);
      tau[j] = factor;
    }
    block_sync();
    if (reflects) block_reflect(column, j, m, math::conj(factor), a, ld, j + 1, n);
  }
}

// The first `columns` columns of the product of `many` reflections, number k of which begins in row k + shift.
template <class T>
TG_DEVICE void block_reflections(const T* a, int64_t lda, const T* tau, int64_t many, int64_t shift, T* q, int64_t ldq,
                                 int64_t rows, int64_t columns) {
  each_element(0, rows, 0, columns, [&](int64_t i, int64_t j) { q[i + j * ldq] = T(i == j ? 1 : 0); });
  block_sync();
  for (int64_t k = many - 1; k >= 0; --k)
    block_reflect<T>(a + k * lda, k + shift, rows, tau[k], q, ldq, k + shift, columns);
}

}  // namespace tapegrad::cuda
