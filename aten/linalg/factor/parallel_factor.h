// Cholesky and LU factors and their solutions for one matrix over several threads. OpenBLAS runs on the calling thread
// (blas.h), so large matrices are factored block by block here: a panel by LAPACK, the part right of it in pieces by
// parallel_for. Blocks and pieces depend on sizes only: the same bits for any number of threads. Small matrices are
// passed to LAPACK whole; within a chunk of another parallel_for all pieces run on that chunk's thread. Column-major,
// as LAPACK; results are LAPACK's infos.
#pragma once

#include "tapegrad/aten/linalg/blas/lapack.h"
#include "tapegrad/aten/linalg/factor/small_factor.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad {

inline constexpr int64_t kFactorBlock = 96;   // columns of a panel
inline constexpr int64_t kFactorLarge = 320;  // from this size on by blocks

// Calls f(first, last) for blocks of columns, in parallel: wide enough for the library's kernels, and for about 2^18
// operations at `per_column` each.
template <class F>
void column_blocks(int64_t n, double per_column, F&& f) {
  int64_t width = std::max<int64_t>(96, static_cast<int64_t>(262144.0 / std::max(per_column, 1.0)));
  parallel_for(0, (n + width - 1) / width, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) f(i * width, std::min((i + 1) * width, n));
  });
}

template <class T>
int parallel_potrf(char uplo, int64_t n, T* a, int64_t lda) {
  if (n <= kSmallFactor) return small_potrf(uplo, n, a, lda);
  if (n < kFactorLarge) return lapack::potrf(uplo, n, a, lda);
  for (int64_t k = 0; k < n; k += kFactorBlock) {
    int64_t b = std::min(kFactorBlock, n - k), rest = n - k - b;
    T* diagonal = a + k + k * lda;
    if (int info = lapack::potrf(uplo, b, diagonal, lda)) return info + static_cast<int>(k);
    if (rest == 0) break;
    double cost = static_cast<double>(b) * static_cast<double>(b);
    if (uplo == 'L') {
      T *panel = diagonal + b, *below = panel + b * lda;
      column_blocks(rest, cost, [&](int64_t first, int64_t last) {
        lapack::trsm('R', 'L', 'C', 'N', last - first, b, diagonal, lda, panel + first, lda);
      });
      // The lower triangle of panel panel^H, in columns; a piece computes its part of the diagonal's block as a whole.
      column_blocks(rest, static_cast<double>(rest) * static_cast<double>(b), [&](int64_t first, int64_t last) {
        lapack::gemm('N', 'C', rest - first, last - first, b, T(-1), panel + first, lda, panel + first, lda, T(1),
                     below + first + first * lda, lda);
      });
    } else {
      T *panel = diagonal + b * lda, *below = panel + b;
      column_blocks(rest, cost, [&](int64_t first, int64_t last) {
        lapack::trsm('L', 'U', 'C', 'N', b, last - first, diagonal, lda, panel + first * lda, lda);
      });
      column_blocks(rest, static_cast<double>(rest) * static_cast<double>(b), [&](int64_t first, int64_t last) {
        lapack::gemm('C', 'N', last, last - first, b, T(-1), panel, lda, panel + first * lda, lda, T(1),
                     below + first * lda, lda);
      });
    }
  }
  // Restores zeros in the other triangle, into which the updates wrote.
  for (int64_t j = 0; j < n; ++j) {
    if (uplo == 'L')
      std::fill(a + j * lda, a + j * lda + j, T(0));
    else
      std::fill(a + j * lda + j + 1, a + j * lda + n, T(0));
  }
  return 0;
}

// Exchanges rows i and pivots[i] - 1 for i in [from, to) in columns [first, last).
template <class T>
void swap_rows(T* a, int64_t lda, int64_t first, int64_t last, int64_t from, int64_t to, const int* pivots) {
  for (int64_t j = first; j < last; ++j)
    for (int64_t i = from; i < to; ++i) std::swap(a[i + j * lda], a[pivots[i] - 1 + j * lda]);
}

template <class T>
int parallel_getrf(int64_t m, int64_t n, T* a, int64_t lda, int* pivots) {
  int64_t k = std::min(m, n);
  if (std::max(m, n) <= kSmallFactor) return small_getrf(m, n, a, lda, pivots);
  if (k < kFactorLarge) return lapack::getrf(m, n, a, lda, pivots);
  int result = 0;
  for (int64_t at = 0; at < k; at += kFactorBlock) {
    int64_t b = std::min(kFactorBlock, k - at), right = at + b;
    int info = lapack::getrf(m - at, b, a + at + at * lda, lda, pivots + at);
    if (info > 0 && result == 0) result = info + static_cast<int>(at);
    for (int64_t i = at; i < right; ++i) pivots[i] += static_cast<int>(at);
    swap_rows(a, lda, 0, at, at, right, pivots);
    double cost = static_cast<double>(b) * static_cast<double>(m - at);
    column_blocks(n - right, 2 * cost, [&](int64_t first, int64_t last) {
      first += right;
      last += right;
      swap_rows(a, lda, first, last, at, right, pivots);
      T* top = a + at + first * lda;
      lapack::trsm('L', 'L', 'N', 'U', b, last - first, a + at + at * lda, lda, top, lda);
      if (right < m)
        lapack::gemm('N', 'N', m - right, last - first, b, T(-1), a + right + at * lda, lda, top, lda, T(1), top + b,
                     lda);
    });
  }
  return result;
}

// b (n x k) = op(a)^-1 b, in columns.
template <class T>
void parallel_getrs(char trans, int64_t n, int64_t k, const T* a, int64_t lda, const int* pivots, T* b, int64_t ldb) {
  if (n == 0 || k == 0) return;
  if (trans == 'N' && std::max(n, k) <= kSmallFactor) return small_getrs(n, k, a, lda, pivots, b, ldb);
  column_blocks(k, 2.0 * static_cast<double>(n) * static_cast<double>(n), [&](int64_t first, int64_t last) {
    lapack::getrs(trans, n, last - first, a, lda, pivots, b + first * ldb, ldb);
  });
}

template <class T>
void parallel_trsm(char uplo, char trans, char diag, int64_t n, int64_t k, const T* a, int64_t lda, T* b, int64_t ldb) {
  if (n == 0 || k == 0) return;
  column_blocks(k, static_cast<double>(n) * static_cast<double>(n), [&](int64_t first, int64_t last) {
    lapack::trsm('L', uplo, trans, diag, n, last - first, a, lda, b + first * ldb, ldb);
  });
}

}  // namespace tapegrad
