// Shared code of eigenvalues and singular values, and the interface to an optional library for them (cuSOLVER;
// factor/solver.cpp), which is used for matrices that are too large for one block of threads. A simulated device has
// one while a test wants it.
#pragma once

#include <atomic>

#include "tapegrad/cuda/linalg/matrices.h"

namespace tapegrad::cuda {

inline constexpr int kNotFiniteInfo = -1000;  // the info of a matrix with infinities or NaN

// Raises LinAlg, with the CPU's message, if an info of the batch is not 0. Waits for the device.
void check_convergence(const char* op, const Tensor& info);

// A = U diag(S) Vh, in results as svd_shape has them; U and Vh are null if they are not wanted. `op` is the operator's
// name for messages.
void decompose_singular(const char* op, const Tensor& A, const Tensor* U, const Tensor& S, const Tensor* Vh);

// Blocks that work on matrices of a batch with workspaces of a few times `elements` each.
inline int64_t blocks_for(int64_t count, int64_t elements) {
  constexpr int64_t kMostBlocks = 1024, kMostElements = int64_t{1} << 26;
  return std::min(count, std::clamp<int64_t>(kMostElements / std::max<int64_t>(elements, 1), 1, kMostBlocks));
}

enum class Spectrum : uint8_t {
  Singular,   // a = u diag(values) vh
  Hermitian,  // m = n; a, whose lower triangle is read, becomes the vectors
  General     // m = n; a u = u diag(values): right vectors as LAPACK's geev has them, packed in pairs for real matrices
};

// One real or complex matrix, column-major, in memory that the library may overwrite; null pointers for unwanted
// results.
struct EigenRequest {
  DType dtype;
  Spectrum spectrum;
  bool vectors;
  int64_t m, n;  // m >= n
  void* a;
  void* values;       // n real ones: ascending eigenvalues, descending singular values; or n complex eigenvalues
  void* u = nullptr;  // m x u_columns, n or m of them
  int64_t u_columns = 0;
  void* vh = nullptr;  // n x n
  int* info;
};

// Queues the work on the stream, or returns false without any effect. Raises if a call of the library fails.
using EigenLibrary = bool (*)(const Stream& stream, const EigenRequest& request);
TG_API extern std::atomic<EigenLibrary> eigen_library;  // null: none

// Matrices with more rows and columns than this are passed to the library one by one, unless there are many: those are
// computed in one launch by a block each.
inline constexpr int64_t kLibraryEigen = 64, kManyEigen = 16, kLargeEigen = 512;

bool library_eigh(const Work& work, const Tensor& A, bool upper, const Tensor& values, const Tensor* vectors,
                  const Tensor& info);
// Complex values and vectors, of length 1 each.
bool library_eig(const Work& work, const Tensor& A, const Tensor& values, const Tensor* vectors, const Tensor& info);
// U and Vh are null where they are not wanted.
bool library_svd(const Work& work, const Tensor& A, const Tensor* U, const Tensor& S, const Tensor* Vh,
                 const Tensor& info);

}  // namespace tapegrad::cuda
