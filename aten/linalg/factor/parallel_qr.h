// QR factors of one matrix over several threads. OpenBLAS runs on the calling thread (blas.h), and its own routines
// spend most of their time in triangular products of thin matrices, so large matrices are factored in panels here: a
// panel recursively by halves down to a few columns, the part right of it in blocks of columns by parallel_for, with
// reflectors combined into I - V t V^H (Schreiber and Van Loan, 1989; panels by halves: Elmroth and Gustavson, 2000).
// All of it is matrix products. Blocks depend on sizes only: the same bits for any number of threads. Column-major, as
// LAPACK.
#pragma once

#include <algorithm>
#include <vector>

#include "tapegrad/aten/linalg/blas/stoppable.h"
#include "tapegrad/aten/linalg/factor/parallel_factor.h"

namespace tapegrad {

inline constexpr int64_t kQrBlock = 64;   // reflectors applied together
inline constexpr int64_t kQrPanel = 16;   // columns that LAPACK factors one by one
inline constexpr int64_t kQrLarge = 128;  // reflectors from which on blocks pay

// The product of b reflectors of m rows, stored below the diagonal of `a` and in tau.
template <class T>
class BlockReflector {
 public:
  BlockReflector(int64_t m, int64_t b, const T* a, int64_t lda, const T* tau)
      : m_(m), b_(b), v_(static_cast<size_t>(m * b)), t_(static_cast<size_t>(b * b)) {
    // With ones and zeros written out, products with V need no triangular routine.
    for (int64_t j = 0; j < b; ++j) {
      T* column = v_.data() + j * m;
      column[j] = T(1);
      std::copy(a + j * lda + j + 1, a + j * lda + m, column + j + 1);
    }
    std::vector<T> products(static_cast<size_t>(b * b));
    lapack::gemm('C', 'N', b, b, m, T(1), v_.data(), m, v_.data(), m, T(0), products.data(), b);
    for (int64_t j = 0; j < b; ++j) {
      T* column = t_.data() + j * b;
      for (int64_t l = 0; l < j; ++l) {
        const T factor = -tau[j] * products[static_cast<size_t>(l + j * b)];
        for (int64_t i = 0; i <= l; ++i) column[i] += t_[static_cast<size_t>(i + l * b)] * factor;
      }
      column[j] = tau[j];
    }
  }

  // c (m x n) = (I - V t V^H) c, or its adjoint times c.
  void apply(bool adjoint, T* c, int64_t ldc, int64_t n) const {
    if (n == 0) return;
    std::vector<T> inner(static_cast<size_t>(2 * b_ * n));
    T *w = inner.data(), *tw = w + b_ * n;
    lapack::gemm('C', 'N', b_, n, m_, T(1), v_.data(), m_, c, ldc, T(0), w, b_);
    lapack::gemm(adjoint ? 'C' : 'N', 'N', b_, n, b_, T(1), t_.data(), b_, w, b_, T(0), tw, b_);
    lapack::gemm('N', 'N', m_, n, b_, T(-1), v_.data(), m_, tw, b_, T(1), c, ldc);
  }

  void parallel_apply(bool adjoint, T* c, int64_t ldc, int64_t n) const {
    check_interrupt();
    column_blocks(n, 4.0 * static_cast<double>(m_) * static_cast<double>(b_),
                  [&](int64_t first, int64_t last) { apply(adjoint, c + first * ldc, ldc, last - first); });
  }

 private:
  int64_t m_, b_;
  std::vector<T> v_, t_;
};

namespace detail {
// Whether `k` reflectors of m rows are worth blocks.
inline bool in_blocks(int64_t m, int64_t k) { return k >= kQrLarge || (k > kQrPanel && m * k >= kQrLarge * 1024); }

template <class T>
void factor_panel(int64_t m, int64_t n, T* a, int64_t lda, T* tau) {
  if (n <= kQrPanel) {
    lapack::stoppable::geqrf(m, n, a, lda, tau);
    return;
  }
  const int64_t half = n / 2;
  factor_panel(m, half, a, lda, tau);
  BlockReflector<T>(m, half, a, lda, tau).apply(true, a + half * lda, lda, n - half);
  factor_panel(m - half, n - half, a + half + half * lda, lda, tau + half);
}
}  // namespace detail

// a (m x n) = Q R, as lapack::geqrf stores them.
template <class T>
void parallel_geqrf(int64_t m, int64_t n, T* a, int64_t lda, T* tau) {
  const int64_t k = std::min(m, n);
  if (!detail::in_blocks(m, k)) {
    lapack::stoppable::geqrf(m, n, a, lda, tau);
    return;
  }
  for (int64_t at = 0; at < k; at += kQrBlock) {
    const int64_t b = std::min(kQrBlock, k - at), right = at + b;
    T* panel = a + at + at * lda;
    detail::factor_panel(m - at, b, panel, lda, tau + at);
    if (right < n)
      BlockReflector<T>(m - at, b, panel, lda, tau + at).parallel_apply(true, panel + b * lda, lda, n - right);
  }
}

// The first n columns of the product of k reflectors of m rows, in their place.
template <class T>
void parallel_orgqr(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, const T* tau) {
  if (!detail::in_blocks(m, k)) {
    lapack::stoppable::orgqr(m, n, k, a, lda, tau);
    return;
  }
  auto unit_columns = [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) {
      std::fill(a + j * lda, a + j * lda + m, T(0));
      a[j + j * lda] = T(1);
    }
  };
  unit_columns(k, n);
  // From the last block to the first: rows and columns before a block are those of the identity when its turn comes.
  for (int64_t at = (k - 1) / kQrBlock * kQrBlock; at >= 0; at -= kQrBlock) {
    const int64_t b = std::min(kQrBlock, k - at);
    T* corner = a + at + at * lda;
    const BlockReflector<T> block(m - at, b, corner, lda, tau + at);
    unit_columns(at, at + b);
    block.parallel_apply(false, corner, lda, n - at);
  }
}

}  // namespace tapegrad
