// The functions of libcusolver and libcublas for cuda/linalg/factor/.
#include "tapegrad/cuda/linalg/factor/solver.h"
#include "tapegrad/cuda/libraries/library.h"
#include "tapegrad/cuda/linalg/spectral.h"

// The library of each function, our name and its own; those that exist once for each dtype.
#define TG_SOLVER_TYPE(X, at, T, gqr)                                \
  X(cusolver, reflections_size[at], cusolverDn##T##gqr##_bufferSize) \
  X(cusolver, reflections[at], cusolverDn##T##gqr)                   \
  X(cusolver, cholesky_many[at], cusolverDn##T##potrfBatched)        \
  X(cublas, substitute[at], cublas##T##trsm_v2_64)                   \
  X(cublas, substitute_many[at], cublas##T##trsmBatched)             \
  X(cublas, lu_many[at], cublas##T##getrfBatched)                    \
  X(cublas, lu_solve_many[at], cublas##T##getrsBatched)
#define TG_SOLVER_FUNCTIONS(X)                                   \
  X(cusolver, create, cusolverDnCreate)                          \
  X(cusolver, create_params, cusolverDnCreateParams)             \
  X(cusolver, set_stream, cusolverDnSetStream)                   \
  X(cusolver, set_deterministic, cusolverDnSetDeterministicMode) \
  X(cusolver, lu_bytes, cusolverDnXgetrf_bufferSize)             \
  X(cusolver, lu, cusolverDnXgetrf)                              \
  X(cusolver, lu_solve, cusolverDnXgetrs)                        \
  X(cusolver, cholesky_bytes, cusolverDnXpotrf_bufferSize)       \
  X(cusolver, cholesky, cusolverDnXpotrf)                        \
  X(cusolver, qr_bytes, cusolverDnXgeqrf_bufferSize)             \
  X(cusolver, qr, cusolverDnXgeqrf)                              \
  X(cusolver, hermitian_bytes, cusolverDnXsyevd_bufferSize)      \
  X(cusolver, hermitian, cusolverDnXsyevd)                       \
  X(cusolver, singular_bytes, cusolverDnXgesvd_bufferSize)       \
  X(cusolver, singular, cusolverDnXgesvd)                        \
  X(cusolver, general_bytes, cusolverDnXgeev_bufferSize)         \
  X(cusolver, general, cusolverDnXgeev)                          \
  X(cublas, create_blas, cublasCreate_v2)                        \
  X(cublas, set_blas_stream, cublasSetStream_v2)                 \
  X(cublas, set_blas_workspace, cublasSetWorkspace_v2)           \
  TG_SOLVER_TYPE(X, 0, S, orgqr)                                 \
  TG_SOLVER_TYPE(X, 1, D, orgqr)                                 \
  TG_SOLVER_TYPE(X, 2, C, ungqr)                                 \
  TG_SOLVER_TYPE(X, 3, Z, ungqr)

#if __has_include(<cusolverDn.h>)
#include <cusolverDn.h>

#include "tapegrad/cuda/libraries/signature.h"
namespace tapegrad::cuda::solver_api {
#define TG_SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs));
TG_SAME(kSuccess, CUSOLVER_STATUS_SUCCESS)
TG_SAME(kSuccess, CUBLAS_STATUS_SUCCESS)
TG_SAME(kSolverNoMemory, CUSOLVER_STATUS_ALLOC_FAILED)
TG_SAME(kNotSupported, CUSOLVER_STATUS_NOT_SUPPORTED)
TG_SAME(kNoVectors, CUSOLVER_EIG_MODE_NOVECTOR)
TG_SAME(kVectors, CUSOLVER_EIG_MODE_VECTOR)
TG_SAME(kBlasNoMemory, CUBLAS_STATUS_ALLOC_FAILED)
TG_SAME(kFloat, CUDA_R_32F)
TG_SAME(kDouble, CUDA_R_64F)
TG_SAME(kComplexFloat, CUDA_C_32F)
TG_SAME(kComplexDouble, CUDA_C_64F)
TG_SAME(kLower, CUBLAS_FILL_MODE_LOWER)
TG_SAME(kUpper, CUBLAS_FILL_MODE_UPPER)
TG_SAME(kPlain, CUBLAS_OP_N)
TG_SAME(kTransposed, CUBLAS_OP_T)
TG_SAME(kAdjoint, CUBLAS_OP_C)
TG_SAME(kAnyDiagonal, CUBLAS_DIAG_NON_UNIT)
TG_SAME(kUnitDiagonal, CUBLAS_DIAG_UNIT)
TG_SAME(kLeft, CUBLAS_SIDE_LEFT)
TG_SAME(kDeterministic, CUSOLVER_DETERMINISTIC_RESULTS)
#undef TG_SAME

#define TG_SAME_FUNCTION(library, ours, theirs) \
  static_assert(std::is_same_v<SignatureOf<decltype(Functions().ours)>, SignatureOf<decltype(&::theirs)>>);
TG_SOLVER_FUNCTIONS(TG_SAME_FUNCTION)
#undef TG_SAME_FUNCTION
}  // namespace tapegrad::cuda::solver_api
#endif

namespace tapegrad::cuda {
namespace {

const solver_api::Functions* find_all() {
  static solver_api::Functions all;
  if (!cusolver().available() || !cublas().available()) return nullptr;
#define TG_FIND(library, ours, theirs) library().find(all.ours, #theirs);
  TG_SOLVER_FUNCTIONS(TG_FIND)
#undef TG_FIND
  return &all;
}

const solver_api::Functions* functions() {
  static const solver_api::Functions* const all = find_all();
  return all;
}

}  // namespace

TG_API void register_solver() {
  solver_api::use_solver(&functions);
  eigen_library.store(&eigen_by_solver, std::memory_order_release);
}

}  // namespace tapegrad::cuda
