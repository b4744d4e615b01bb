// Cholesky and LU factors and solutions of matrices of a few rows, where calling a library costs more than the work:
// batches of 3 x 3 or 4 x 4 matrices are common. The same algorithm as LAPACK's getf2 and getrs, with the same pivots.
// Column-major.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad {

inline constexpr int64_t kSmallFactor = 8;  // rows and columns

namespace detail {
// The size by which LAPACK chooses pivots.
template <class T>
auto pivot_size(T v) {
  if constexpr (is_complex_type<T>)
    return std::abs(v.real()) + std::abs(v.imag());
  else
    return std::abs(v);
}
template <class T>
T conjugate(T v) {
  if constexpr (is_complex_type<T>)
    return std::conj(v);
  else
    return v;
}
}  // namespace detail

// a (n x n) = L L^H ('L') or U^H U ('U') of the given triangle. Returns 0, or the order of the first leading minor that
// is not positive.
template <class T>
int small_potrf(char uplo, int64_t n, T* a, int64_t lda) {
  for (int64_t j = 0; j < n; ++j) {
    T* column = a + j * lda;
    if (uplo == 'L') {
      for (int64_t k = 0; k < j; ++k) {
        const T* other = a + k * lda;
        const T factor = detail::conjugate(other[j]);
        for (int64_t i = j; i < n; ++i) column[i] -= other[i] * factor;
      }
    } else {
      for (int64_t i = 0; i <= j; ++i) {
        const T* other = a + i * lda;
        for (int64_t k = 0; k < i; ++k) column[i] -= detail::conjugate(other[k]) * column[k];
        if (i < j) column[i] /= other[i];
      }
    }
    const auto minor = std::real(column[j]);
    column[j] = T(minor);
    if (!(minor > 0)) return static_cast<int>(j + 1);
    const auto root = std::sqrt(minor);
    column[j] = T(root);
    if (uplo == 'L')
      for (int64_t i = j + 1; i < n; ++i) column[i] /= root;
  }
  return 0;
}

// a (m x n) = P L U; pivots count from 1. Returns 0, or the number of the first zero on the diagonal.
template <class T>
int small_getrf(int64_t m, int64_t n, T* a, int64_t lda, int* pivots) {
  int info = 0;
  for (int64_t j = 0; j < std::min(m, n); ++j) {
    T* column = a + j * lda;
    int64_t p = j;
    for (int64_t i = j + 1; i < m; ++i)
      if (detail::pivot_size(column[i]) > detail::pivot_size(column[p])) p = i;
    pivots[j] = static_cast<int>(p + 1);
    if (column[p] == T(0)) {
      if (info == 0) info = static_cast<int>(j + 1);
      continue;
    }
    if (p != j)
      for (int64_t k = 0; k < n; ++k) std::swap(a[j + k * lda], a[p + k * lda]);
    for (int64_t i = j + 1; i < m; ++i) column[i] /= column[j];
    for (int64_t k = j + 1; k < n; ++k) {
      T* other = a + k * lda;
      for (int64_t i = j + 1; i < m; ++i) other[i] -= column[i] * other[j];
    }
  }
  return info;
}

// b (n x k) = a^-1 b for the factors a. A zero on the diagonal divides.
template <class T>
void small_getrs(int64_t n, int64_t k, const T* a, int64_t lda, const int* pivots, T* b, int64_t ldb) {
  for (int64_t c = 0; c < k; ++c) {
    T* x = b + c * ldb;
    for (int64_t i = 0; i < n; ++i) std::swap(x[i], x[pivots[i] - 1]);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = j + 1; i < n; ++i) x[i] -= a[i + j * lda] * x[j];
    for (int64_t j = n - 1; j >= 0; --j) {
      x[j] /= a[j + j * lda];
      for (int64_t i = 0; i < j; ++i) x[i] -= a[i + j * lda] * x[j];
    }
  }
}

}  // namespace tapegrad
