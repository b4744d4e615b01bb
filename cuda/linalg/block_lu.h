// LU factors and substitution by the threads of a block; all of them must call these functions, which end with a
// barrier. Matrices are column-major. Pivots are LAPACK's: the largest |re| + |im|, the first of equal ones.
#pragma once

#include "tapegrad/cuda/linalg/matrices.h"

namespace tapegrad::cuda {

template <class R>
struct Pivot {
  R size;
  int64_t row;  // -1: none
};
struct BetterPivot {
  template <class R>
  TG_DEVICE Pivot<R> operator()(const Pivot<R>& a, const Pivot<R>& b) const {
    if (a.row < 0) return b;
    if (b.row < 0) return a;
    return b.size > a.size || (b.size == a.size && b.row < a.row) ? b : a;
  }
};

// a (m x n) = P L U; pivots count from 1. Returns 0, or the number of the first zero on the diagonal.
template <class T>
TG_DEVICE int block_lu(T* a, int64_t lda, int64_t m, int64_t n, int* pivots, Pivot<real_t<T>>* scratch) {
  int info = 0;
  for (int64_t j = 0; j < m && j < n; ++j) {
    Pivot<real_t<T>> best{0, -1};
    for (int64_t i = j + thread_index(); i < m; i += block_size()) {
      const T v = a[i + j * lda];
      best = BetterPivot()(best, {math::magnitude(real_part(v)) + math::magnitude(imag_part(v)), i});
    }
    best = block_reduce(best, BetterPivot(), scratch);
    const T pivot = a[best.row + j * lda];
    if (thread_index() == 0) pivots[j] = static_cast<int>(best.row + 1);
    block_sync();  // all have read
    if (pivot == T(0)) {
      if (info == 0) info = static_cast<int>(j + 1);
      continue;
    }
    if (best.row != j)
      for (int64_t k = thread_index(); k < n; k += block_size()) {
        const T v = a[j + k * lda];
        a[j + k * lda] = a[best.row + k * lda];
        a[best.row + k * lda] = v;
      }
    block_sync();
    for (int64_t i = j + 1 + thread_index(); i < m; i += block_size())
      a[i + j * lda] = math::div(a[i + j * lda], pivot);
    block_sync();
    each_element(j + 1, m, j + 1, n, [&](int64_t i, int64_t k) {
      a[i + k * lda] = minus_product(a[i + k * lda], a[i + j * lda], a[j + k * lda]);
    });
    block_sync();
  }
  return info;
}

// One triangle of a matrix (n x n): element (i, j) is a[i * row + j * col], conjugated on request.
template <class T>
struct Triangle {
  const T* a;
  int64_t row, col;
  bool conjugate, upper, unit;
  TG_DEVICE T at(int64_t i, int64_t j) const {
    const T v = a[i * row + j * col];
    return conjugate ? math::conj(v) : v;
  }
};
// x (n x k) = triangle^-1 x. A zero on the diagonal divides.
template <class T>
TG_DEVICE void block_substitute(const Triangle<T>& t, int64_t n, T* x, int64_t ldx, int64_t k) {
  for (int64_t step = 0; step < n; ++step) {
    const int64_t j = t.upper ? n - 1 - step : step;
    if (!t.unit) {
      const T d = t.at(j, j);
      for (int64_t c = thread_index(); c < k; c += block_size()) x[j + c * ldx] = math::div(x[j + c * ldx], d);
      block_sync();
    }
    each_element(t.upper ? 0 : j + 1, t.upper ? j : n, 0, k, [&](int64_t i, int64_t c) {
      x[i + c * ldx] = minus_product(x[i + c * ldx], t.at(i, j), x[j + c * ldx]);
    });
    block_sync();
  }
}

// Rows exchanged as the pivots say, or back.
template <class T>
TG_DEVICE void block_exchange(const int* pivots, int64_t n, bool back, T* x, int64_t ldx, int64_t k) {
  for (int64_t c = thread_index(); c < k; c += block_size())
    for (int64_t step = 0; step < n; ++step) {
      const int64_t i = back ? n - 1 - step : step, p = pivots[i] - 1;
      const T v = x[i + c * ldx];
      x[i + c * ldx] = x[p + c * ldx];
      x[p + c * ldx] = v;
    }
  block_sync();
}

// x = (P L U)^-1 x, or of its adjoint.
template <class T>
TG_DEVICE void block_lu_solve(const T* lu, int64_t row, int64_t col, const int* pivots, bool adjoint, int64_t n, T* x,
                              int64_t ldx, int64_t k) {
  if (!adjoint) {
    block_exchange(pivots, n, false, x, ldx, k);
    block_substitute(Triangle<T>{lu, row, col, false, false, true}, n, x, ldx, k);
    block_substitute(Triangle<T>{lu, row, col, false, true, false}, n, x, ldx, k);
  } else {  // rows and columns of the factors change places
    block_substitute(Triangle<T>{lu, col, row, true, false, false}, n, x, ldx, k);
    block_substitute(Triangle<T>{lu, col, row, true, true, true}, n, x, ldx, k);
    block_exchange(pivots, n, true, x, ldx, k);
  }
}

template <class T>
TG_DEVICE void block_load(const T* from, int64_t row, int64_t col, int64_t m, int64_t n, T* to, int64_t ld) {
  each_element(0, m, 0, n, [&](int64_t i, int64_t j) { to[i + j * ld] = from[i * row + j * col]; });
  block_sync();
}

}  // namespace tapegrad::cuda
