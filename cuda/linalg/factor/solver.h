// Factors, solutions with them, eigenvalues and singular values (divide and conquer; QR; QR with shifts for general
// matrices) of large matrices by cuSOLVER and cuBLAS, column-major, one at a time as LAPACK does them or many in a
// call: queued on a stream, with workspaces of the caching allocator. Thread rules: any thread; a device's Solver takes
// one call at a time. Errors of the libraries are raised; infos are written on the device.
#pragma once

#include <mutex>

#include "tapegrad/cuda/linalg/factor/solver_api.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

struct EigenRequest;  // linalg/spectral.h

struct Columns {
  void* data;
  int64_t rows, cols, ld;
};

// Many of one size: the device's array of their addresses.
struct ManyColumns {
  const void* addresses;
  int count, rows, cols, ld;
};

class Solver {
 public:
  Solver();  // the current device must be this object's
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  void lu(const Stream& stream, DType dtype, const Columns& a, int64_t* pivots, int* info);
  // x = (P L U)^-1 x, or of its adjoint.
  void lu_solve(const Stream& stream, DType dtype, const Columns& lu, const int64_t* pivots, bool adjoint,
                const Columns& x, int* info);
  void cholesky(const Stream& stream, DType dtype, const Columns& a, bool upper, int* info);
  void qr(const Stream& stream, DType dtype, const Columns& a, void* tau, int* info);
  // q becomes the first columns of the product of the reflections that it holds below its diagonal. The library counts
  // in 32 bits.
  void reflections(const Stream& stream, DType dtype, const Columns& q, const void* tau, int64_t many, int* info);
  // x = triangle^-1 x; of a, or of its transpose.
  void substitute(const Stream& stream, DType dtype, const Columns& a, bool transposed, bool upper, bool unit,
                  const Columns& x);

  // The same of many square matrices. What is below or above the triangle of Cholesky factors is lost.
  void lu_many(const Stream& stream, DType dtype, const ManyColumns& a, int* pivots, int* info);
  void lu_solve_many(const Stream& stream, DType dtype, const ManyColumns& lu, const int* pivots, bool adjoint,
                     const ManyColumns& x);
  void cholesky_many(const Stream& stream, DType dtype, const ManyColumns& a, bool upper, int* info);
  void substitute_many(const Stream& stream, DType dtype, const ManyColumns& a, bool transposed, bool upper, bool unit,
                       const ManyColumns& x);

  // As an EigenLibrary does it (linalg/spectral.h).
  bool spectrum(const Stream& stream, const EigenRequest& request);

 private:
  class Call;
  class BlasCall;

  void hermitian(Call& call, const EigenRequest& r);
  void singular(Call& call, const EigenRequest& r);
  bool general(Call& call, const EigenRequest& r);

  std::mutex mutex_;
  void* handle_ = nullptr;
  void* params_ = nullptr;
  void* blas_ = nullptr;  // made by the first use
};

// The current device's, or null where the libraries are missing, and during a capture, unless all calls are cuBLAS's
// (`only_blas`: lu_many, lu_solve_many, substitute): NVIDIA says that those may be captured, and nothing of those of
// cuSOLVER. Raises where it would be part of a recorded step's graph, which has eager's bits.
Solver* solver_of(const Stream& stream, bool only_blas);

TG_API bool eigen_by_solver(const Stream& stream, const EigenRequest& request);

}  // namespace tapegrad::cuda
