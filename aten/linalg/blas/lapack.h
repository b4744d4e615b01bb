// The LAPACK routines that kernels use, for float, double and their complex numbers: column-major, on the calling
// thread only (blas.h says why). Each returns LAPACK's `info`: 0, or where it failed. Workspaces are sized and
// allocated inside. Sizes must fit the library's 32-bit integers: shape functions check that. Thread rules: any thread,
// several at once.
#pragma once

#include <cstdint>

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad::lapack {

// The real type of T's parts.
template <class T>
struct real_of {
  using type = T;
};
template <class T>
struct real_of<std::complex<T>> {
  using type = T;
};
template <class T>
using real_t = typename real_of<T>::type;

// a (n x n) = L L^H ('L') or U^H U ('U').
template <class T>
int potrf(char uplo, int64_t n, T* a, int64_t lda);
// a (m x n) = P L U; pivots as in LAPACK, counted from 1.
template <class T>
int getrf(int64_t m, int64_t n, T* a, int64_t lda, int* pivots);
// b (n x k) = op(a)^-1 b for getrf's factors; trans is 'N', 'T' or 'C'.
template <class T>
int getrs(char trans, int64_t n, int64_t k, const T* a, int64_t lda, const int* pivots, T* b, int64_t ldb);
template <class T>
int getri(int64_t n, T* a, int64_t lda, const int* pivots);
// b (m x n) = op(a)^-1 b for a triangular a; side 'R': b op(a)^-1.
template <class T>
void trsm(char side, char uplo, char trans, char diag, int64_t m, int64_t n, const T* a, int64_t lda, T* b,
          int64_t ldb);
// c (m x n) = alpha op(a) op(b) + beta c with k products per element.
template <class T>
void gemm(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, const T* b,
          int64_t ldb, T beta, T* c, int64_t ldc);

// a (m x n) = Q R: reflectors below the diagonal and in tau.
template <class T>
int geqrf(int64_t m, int64_t n, T* a, int64_t lda, T* tau);
// The first n columns of the product of k reflectors.
template <class T>
int orgqr(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, const T* tau);

// a (m x n) = u diag(s) vt; job 'A': all columns, 'S': the first min(m, n), 'N': s alone. a is destroyed.
template <class T>
int gesdd(char job, int64_t m, int64_t n, T* a, int64_t lda, real_t<T>* s, T* u, int64_t ldu, T* vt, int64_t ldvt);
// Eigenvalues in ascending order, and in a the eigenvectors for job 'V'.
template <class T>
int syevd(char job, char uplo, int64_t n, T* a, int64_t lda, real_t<T>* w);
// Eigenvalues and, unless v is null, right eigenvectors (n x n, leading size n) of a general matrix.
template <class T>
int geev(int64_t n, T* a, int64_t lda, std::complex<real_t<T>>* w, std::complex<real_t<T>>* v);

// Least squares: b (max(m, n) x k) becomes the solution. driver: "gels", "gelsy", "gelsd", "gelss".
template <class T>
int gels(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, T* b, int64_t ldb);
template <class T>
int gelsy(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, T* b, int64_t ldb, real_t<T> rcond, int* rank);
template <class T>
int gelsd(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, T* b, int64_t ldb, real_t<T>* s, real_t<T> rcond,
          int* rank);
template <class T>
int gelss(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, T* b, int64_t ldb, real_t<T>* s, real_t<T> rcond,
          int* rank);

// L D L^T, or L D L^H for `hermitian` (the same for real numbers), of the lower triangle (Bunch and Kaufman).
template <class T>
int sytrf(bool hermitian, int64_t n, T* a, int64_t lda, int* pivots);
template <class T>
int sytrs(bool hermitian, int64_t n, int64_t k, const T* a, int64_t lda, const int* pivots, T* b, int64_t ldb);

}  // namespace tapegrad::lapack
