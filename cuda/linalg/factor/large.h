// Large matrices go to cuSOLVER and cuBLAS, one by one or many in a call: each function returns false, without any
// effect, where a block of threads per matrix shall do it (small matrices, no library, a capture). Results as on the
// CPU.
#pragma once

#include "tapegrad/cuda/linalg/matrices.h"

namespace tapegrad::cuda::large {

// Up to so many rows and columns a block of threads is faster (an H100, 2026-11-27; us for 1 and 15 matrices of 40 x
// 40: LU factors 78 and 96, torch's library 77 and 52).
inline constexpr int64_t kSmall = 32;
// Larger ones are calls of their own where there are few, of so many rows for each; else one call for all. Calls for
// one took, for n = 72, 256, 1024: LU 125, 425, 2055, Cholesky 44, 87, 360, triangular equations 16, 52, 325; one call
// for 15 took 107, 1762, 15987; 78, 275, 2007; 46, 140, 1258.
inline constexpr int64_t kRowsForEach = 64;
inline constexpr int kFew = 4;  // for Cholesky factors and triangular equations, whatever their size
// Cholesky factors of many matrices of up to so many rows are faster by a block for each (91 against 89 for n = 64).
inline constexpr int64_t kSmallCholesky = 64;
// What has no call for many (QR factors, other than square ones): from so many columns for each matrix on, and in any
// case beyond kLarge. A block took 1322, 6539, 46073 for n = 128, 256, 512, as many as there are; a call 928, 739,
// 1863.
inline constexpr int64_t kColumnsForEach = 32, kLarge = 512;

// `info` may be undefined.
bool lu(const Work& work, const Tensor& A, const Tensor& LU, const Tensor& pivots, const Tensor& info);
// `pivots` must be within bounds. Without a B X becomes the inverse.
bool lu_solve(const Work& work, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool adjoint, const Tensor& X);
bool cholesky(const Work& work, const Tensor& A, bool upper, const Tensor& L, const Tensor& info);
bool qr(const Work& work, const Tensor& A, const Tensor& factors, const Tensor& tau);
bool reflections(const Work& work, const Tensor& factors, const Tensor& tau, const Tensor& Q);
bool substitute(const Work& work, const Tensor& A, const Tensor& B, bool upper, bool unit, const Tensor& X);

}  // namespace tapegrad::cuda::large
