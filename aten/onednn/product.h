// Matrix products by oneDNN on the calling thread, row-major, for the shapes in which it is faster than OpenBLAS. Which
// library multiplies is a function of sizes and of the processor, never of a timing or of the number of threads. Thread
// rules: any thread, several at once.
#pragma once

#include <cstdint>

#include "tapegrad/c10/macros.h"
#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad::onednn {

// Whether this build has oneDNN (TAPEGRAD_ONEDNN). Without it aten/without_onednn.cpp says no to every question.
TG_API bool available();

// Whether the processor multiplies this type of 16 or 8 bits by instructions of its own, which oneDNN then uses:
// AVX-512's or AMX's; those of bfloat16 take subnormal numbers as zero. Elsewhere a product of converted factors is
// faster. Never where TAPEGRAD_ISA asks for less than AVX-512.
bool multiplies(DType dtype);
// Whether it multiplies matrices of int8 by single instructions (AMX).
bool has_int8_tiles();

// How the factors of c (m x n) = op(a) (m x k) * op(b) (k x n) lie; the strides are from row to row as stored.
struct Product {
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
  int64_t trans_a, trans_b;  // 0 or 1
  bool operator==(const Product&) const = default;
};

// float32: whether sgemm() is meant for such a product.
bool is_faster(const Product& p);
// c = alpha * op(a) * op(b) + beta * c; c is not read when beta is 0. False, with nothing written, if it finds no
// memory: OpenBLAS keeps its own.
bool sgemm(const Product& p, float alpha, const float* a, const float* b, float beta, float* c);

// Factors of a 16-bit type, sums in float, written as `out`, which is float32 or the factors' type; or of int8, sums
// and `out` in int32. `add`: to what c holds. False where oneDNN has no fast implementation for it, see multiplies(),
// or none any more, since it found no memory once; c is as it was where `add` asks for that.
bool multiply(const Product& p, DType factors, const void* a, const void* b, DType out, bool add, void* c);

}  // namespace tapegrad::onednn
