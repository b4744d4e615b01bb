// Products of few rows by a matrix, as `linear` and addmm of a vector have them: what generation and inference of small
// batches consist of. They are limited by the reading of the weights, which BLAS packs or reads with one stream: here
// each weight is read once, several lines side by side, and threads share the columns. Each sum is added up in an order
// that depends on k alone, so that a row has the same bits whatever stands beside it, as long as the rows are few.
#pragma once

#include <cstdint>

#include "tapegrad/aten/linalg/product/gemm.h"

namespace tapegrad::cpu::TG_ISA {

// Whether skinny_product is meant for such a product: few rows, and columns or rows of b that are contiguous.
template <class T>
bool is_skinny(int64_t m, int64_t n, int64_t k, MatrixRef<T> b);

// c (m x n, row stride ldc) = alpha * a (m x k) * b (k x n) + beta * c, for which is_skinny holds. T is float, Half or
// BFloat16; sums are float.
template <class T>
void skinny_product(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<T> a, MatrixRef<T> b, float beta, T* c,
                    int64_t ldc);

// c (m x n) = a (m x k) * w^T * scales for a weight w (n x k) of int8 and a factor for each of its rows, all
// contiguous; m is at most kMostSkinnyRows.
inline constexpr int kMostSkinnyRows = 16;
template <class T>
void skinny_int8(int64_t m, int64_t n, int64_t k, const T* a, const int8_t* w, const T* scales, T* c);

// Of 16-bit types: c (m x n, row stride ldc) = a * b, or that + c, in float.
template <class T>
void skinny_sums(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b, bool add, float* c, int64_t ldc);

}  // namespace tapegrad::cpu::TG_ISA
