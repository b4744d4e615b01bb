// Products of float32 so small that a call of a library takes as long as the multiplications: tiles of the result in
// registers. Each sum is added up in the order of its terms, so its bits depend on nothing but its row and column.
#pragma once

#include <cstdint>

#include "tapegrad/aten/linalg/product/gemm.h"

namespace tapegrad::cpu::TG_ISA {

// c (m x n, row stride ldc) = alpha * a (m x k) * b (k x n) + beta * c, where that is such a product; else false, and
// nothing is done. None of the sizes is 0.
bool small_product(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a, MatrixRef<float> b, float beta,
                   float* c, int64_t ldc);

}  // namespace tapegrad::cpu::TG_ISA
