#include "tapegrad/aten/linalg/blas.h"

#include <cblas.h>

#include <mutex>

extern "C" void scipy_openblas_set_num_threads(int n);

namespace tapegrad::blas {
namespace {

void use_one_thread() {
  static std::once_flag once;
  std::call_once(once, [] { scipy_openblas_set_num_threads(1); });
}

CBLAS_TRANSPOSE flag(bool trans) { return trans ? CblasTrans : CblasNoTrans; }
blasint narrow(int64_t v) { return static_cast<blasint>(v); }

}  // namespace

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  use_one_thread();
  scipy_cblas_sgemm(CblasRowMajor, flag(trans_a), flag(trans_b), narrow(m), narrow(n), narrow(k), alpha, a,
                    narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  use_one_thread();
  scipy_cblas_dgemm(CblasRowMajor, flag(trans_a), flag(trans_b), narrow(m), narrow(n), narrow(k), alpha, a,
                    narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, complex64_t alpha, const complex64_t* a,
          int64_t lda, const complex64_t* b, int64_t ldb, complex64_t beta, complex64_t* c, int64_t ldc) {
  use_one_thread();
  scipy_cblas_cgemm(CblasRowMajor, flag(trans_a), flag(trans_b), narrow(m), narrow(n), narrow(k), &alpha, a,
                    narrow(lda), b, narrow(ldb), &beta, c, narrow(ldc));
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, complex128_t alpha, const complex128_t* a,
          int64_t lda, const complex128_t* b, int64_t ldb, complex128_t beta, complex128_t* c, int64_t ldc) {
  use_one_thread();
  scipy_cblas_zgemm(CblasRowMajor, flag(trans_a), flag(trans_b), narrow(m), narrow(n), narrow(k), &alpha, a,
                    narrow(lda), b, narrow(ldb), &beta, c, narrow(ldc));
}

void gemv(bool trans, int64_t m, int64_t n, float alpha, const float* a, int64_t lda, const float* x, int64_t incx,
          float beta, float* y, int64_t incy) {
  use_one_thread();
  scipy_cblas_sgemv(CblasRowMajor, flag(trans), narrow(m), narrow(n), alpha, a, narrow(lda), x, narrow(incx), beta, y,
                    narrow(incy));
}

void gemv(bool trans, int64_t m, int64_t n, double alpha, const double* a, int64_t lda, const double* x, int64_t incx,
          double beta, double* y, int64_t incy) {
  use_one_thread();
  scipy_cblas_dgemv(CblasRowMajor, flag(trans), narrow(m), narrow(n), alpha, a, narrow(lda), x, narrow(incx), beta, y,
                    narrow(incy));
}

}  // namespace tapegrad::blas
