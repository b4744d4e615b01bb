// Large matrices go to cuSOLVER one by one: each function returns false, without any effect, where a block of threads
// per matrix shall do it (small matrices, many of them, no library, a
// capture). Results as on the CPU.
#pragma once

#include "tapegrad/cuda/linalg/matrices.h"

namespace tapegrad::cuda::large {

// Matrices of more elements than kSmallest go to the library, unless there are kMany or more of up to kLarge: those are
// computed at once, by a block each. The bounds are those of eigenvalues, and estimates: a block takes about 10 us for
// each column at 256 rows, a call of the library some 100 us and more. To be measured on a card.
inline constexpr int64_t kSmallest = 64 * 64, kMany = 16, kLarge = 512 * 512;

// `info` may be undefined.
bool lu(const Work& work, const Tensor& A, const Tensor& LU, const Tensor& pivots, const Tensor& info);
// `pivots` must be within bounds. Without a B X becomes the inverse.
bool lu_solve(const Work& work, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool adjoint, const Tensor& X);
bool cholesky(const Work& work, const Tensor& A, bool upper, const Tensor& L, const Tensor& info);
bool qr(const Work& work, const Tensor& A, const Tensor& factors, const Tensor& tau);
bool reflections(const Work& work, const Tensor& factors, const Tensor& tau, const Tensor& Q);
bool substitute(const Work& work, const Tensor& A, const Tensor& B, bool upper, bool unit, const Tensor& X);

}  // namespace tapegrad::cuda::large
