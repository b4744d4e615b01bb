// Matrix products on raw memory, for every numeric type and any strides of the factors, one product or a
// batch. Large products are cut into tiles whose borders depend on sizes only and run over parallel_for, so
// results have the same bits for any number of threads. 16-bit types are converted tile by tile and
// accumulate in float.
#pragma once

#include <cstdint>

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad {

// Element (i, j) is at data[i * row + j * col].
template <class T>
struct MatrixRef {
  const T* data;
  int64_t row;
  int64_t col;
};

namespace cpu::TG_ISA {

// c (m x n, unit column stride, row stride ldc) = alpha * a (m x k) * b (k x n) + beta * c; c is not read
// when beta is 0. Defined for everything but bool.
template <class T>
void gemm(int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a, MatrixRef<T> b, compute_t<T> beta, T* c,
          int64_t ldc);

// The same `batch` times; the strides are from one matrix to the next.
template <class T>
void gemm_batched(int64_t batch, int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a, int64_t a_batch,
                  MatrixRef<T> b, int64_t b_batch, compute_t<T> beta, T* c, int64_t ldc, int64_t c_batch);

// c (m x n) = alpha * a * b, or that + c, in the compute type and on the calling thread; of floating types.
template <class T>
void gemm_sums(int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a, MatrixRef<T> b, bool add,
               compute_t<T>* c, int64_t ldc);

// The same of 16-bit types, shared out to threads as gemm() does, and in the same ways.
template <class T>
void shared_sums(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b, bool add, float* c, int64_t ldc);

}  // namespace cpu::TG_ISA
}  // namespace tapegrad
