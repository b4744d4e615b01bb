// The BLAS routines that kernels use, overloaded by type, row-major, on the calling thread only.
// OpenBLAS gives other bits for other thread counts and tile borders (seen from 128 x 128 on), so it runs
// with one thread, and kernels cut their work into pieces that depend on sizes only (gemm.h). Thread rules:
// any thread, several at once.
#pragma once

#include <cstdint>

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad::blas {

// c (m x n) = alpha * op(a) (m x k) * op(b) (k x n) + beta * c; c is not read when beta is 0.
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc);
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, complex64_t alpha, const complex64_t* a,
          int64_t lda, const complex64_t* b, int64_t ldb, complex64_t beta, complex64_t* c, int64_t ldc);
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, complex128_t alpha, const complex128_t* a,
          int64_t lda, const complex128_t* b, int64_t ldb, complex128_t beta, complex128_t* c, int64_t ldc);

// y = alpha * op(a) x + beta * y for a row-major m x n matrix.
void gemv(bool trans, int64_t m, int64_t n, float alpha, const float* a, int64_t lda, const float* x, int64_t incx,
          float beta, float* y, int64_t incy);
void gemv(bool trans, int64_t m, int64_t n, double alpha, const double* a, int64_t lda, const double* x, int64_t incx,
          double beta, double* y, int64_t incy);

// The largest size or stride that the library's 32-bit integers take.
inline constexpr int64_t kMaxInt = (int64_t{1} << 31) - 1;

}  // namespace tapegrad::blas
