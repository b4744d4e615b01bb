#include "tapegrad/aten/linalg/blas/blas.h"

#include <cblas.h>

#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/linalg/blas/openblas.h"
#include "tapegrad/aten/linalg/blas/openblas_scratch.h"
#include "tapegrad/c10/dispatch/work_counters.h"

namespace tapegrad::blas {
namespace {

// The routine with the type of its declaration in cblas.h, looked up once, and its scratch.
#define TG_BLAS(name)                                                                         \
  static const auto routine = reinterpret_cast<decltype(&scipy_##name)>(find_routine(#name)); \
  count_work(Work::LibraryCall);                                                              \
  need_scratch()

CBLAS_TRANSPOSE flag(bool trans) { return trans ? CblasTrans : CblasNoTrans; }
blasint narrow(int64_t v) { return static_cast<blasint>(v); }

}  // namespace

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  TG_BLAS(cblas_sgemm);
  routine(CblasRowMajor, flag(trans_a), flag(trans_b), narrow(m), narrow(n), narrow(k), alpha, a, narrow(lda), b,
          narrow(ldb), beta, c, narrow(ldc));
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  TG_BLAS(cblas_dgemm);
  routine(CblasRowMajor, flag(trans_a), flag(trans_b), narrow(m), narrow(n), narrow(k), alpha, a, narrow(lda), b,
          narrow(ldb), beta, c, narrow(ldc));
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, complex64_t alpha, const complex64_t* a,
          int64_t lda, const complex64_t* b, int64_t ldb, complex64_t beta, complex64_t* c, int64_t ldc) {
  TG_BLAS(cblas_cgemm);
  routine(CblasRowMajor, flag(trans_a), flag(trans_b), narrow(m), narrow(n), narrow(k), &alpha, a, narrow(lda), b,
          narrow(ldb), &beta, c, narrow(ldc));
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, complex128_t alpha, const complex128_t* a,
          int64_t lda, const complex128_t* b, int64_t ldb, complex128_t beta, complex128_t* c, int64_t ldc) {
  TG_BLAS(cblas_zgemm);
  routine(CblasRowMajor, flag(trans_a), flag(trans_b), narrow(m), narrow(n), narrow(k), &alpha, a, narrow(lda), b,
          narrow(ldb), &beta, c, narrow(ldc));
}

void gemv(bool trans, int64_t m, int64_t n, float alpha, const float* a, int64_t lda, const float* x, int64_t incx,
          float beta, float* y, int64_t incy) {
  TG_BLAS(cblas_sgemv);
  routine(CblasRowMajor, flag(trans), narrow(m), narrow(n), alpha, a, narrow(lda), x, narrow(incx), beta, y,
          narrow(incy));
}

void gemv(bool trans, int64_t m, int64_t n, double alpha, const double* a, int64_t lda, const double* x, int64_t incx,
          double beta, double* y, int64_t incy) {
  TG_BLAS(cblas_dgemv);
  routine(CblasRowMajor, flag(trans), narrow(m), narrow(n), alpha, a, narrow(lda), x, narrow(incx), beta, y,
          narrow(incy));
}

#undef TG_BLAS

}  // namespace tapegrad::blas
