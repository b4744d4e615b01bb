// QR factors, eigenvalues and singular values of small real matrices, where a call of LAPACK is mostly the overhead of
// its many small steps: batches of 3 x 3 or 16 x 16 matrices are common. Compiled once per instruction set. Thread
// rules: any thread, several at once; each matrix is one thread's.
#pragma once

#include <cstdint>

namespace tapegrad {

inline constexpr int64_t kSmallEigen = 64;  // rows and columns up to which small_eigh and small_qr take a matrix
inline constexpr int64_t kSmallSvd = 32;    // rows and columns up to which small_svd does

// Eigenvalues (n) in ascending order and, unless `vectors` is null, eigenvectors of a symmetric matrix, both by
// columns of leading size n; only the triangle `uplo` ('L' or 'U') of `a` is read, and `vectors` may be `a`. False,
// with nothing written, for a matrix that LAPACK should have: too large, of extreme scale, or slow to converge.
// Householder's reduction and implicit QL steps (Golub and Van Loan, Matrix Computations, 8.3; Dubrulle 1970).
template <class T>
bool small_eigh(char uplo, int64_t n, const T* a, T* values, T* vectors);

// a (m x n) = u diag(s) vt with k = min(m, n) columns, in descending order; by columns, with leading sizes m, m and k.
// False, with nothing written, for a matrix that LAPACK should have: too large, rank-deficient, or of extreme scale.
// Rotations of columns (Hestenes 1958), all disjoint pairs of a round at once (Brent and Luk 1985).
template <class T>
bool small_svd(int64_t m, int64_t n, const T* a, T* u, T* s, T* vt);

// a (m x n) = q r by reflectors, signs as LAPACK's: the first `columns` columns of q (leading size m; none for 0) and
// the first `rows` rows of r (leading size rows). False, with nothing written, for a matrix that LAPACK should have:
// too large, of extreme scale, or not finite.
template <class T>
bool small_qr(int64_t m, int64_t n, const T* a, int64_t columns, T* q, int64_t rows, T* r);

}  // namespace tapegrad
