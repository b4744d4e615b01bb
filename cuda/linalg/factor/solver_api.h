// The part of cuSOLVER 12 and cuBLAS 13 for large matrices, their factors, equations and eigenvalues: functions, and
// the constants of their options. Where NVIDIA's headers are available, libraries/solver.cpp checks both.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tapegrad/c10/tensor/dtype.h"
#include "tapegrad/cuda/libraries/function.h"

namespace tapegrad::cuda::solver_api {

inline constexpr int kSuccess = 0, kSolverNoMemory = 2, kNotSupported = 9, kBlasNoMemory = 3;
enum DataType : int { kFloat = 0, kDouble = 1, kComplexFloat = 4, kComplexDouble = 5 };
enum Fill : int { kLower = 0, kUpper = 1 };
enum Operation : int { kPlain = 0, kTransposed = 1, kAdjoint = 2 };
enum EigenMode : int { kNoVectors = 0, kVectors = 1 };
enum Diagonal : int { kAnyDiagonal = 0, kUnitDiagonal = 1 };
inline constexpr int kLeft = 0;           // side
inline constexpr int kDeterministic = 1;  // results have the same bits in every run

// The place of a dtype in arrays of functions that exist once for each.
inline int place_of(DType dtype) { return (to_real(dtype) == DType::float32 ? 0 : 1) + (is_complex(dtype) ? 2 : 0); }
inline DataType data_type(DType dtype) {
  constexpr DataType types[] = {kFloat, kDouble, kComplexFloat, kComplexDouble};
  return types[place_of(dtype)];
}

// The functions, looked up when the libraries are opened; tests supply their own. The int results are statuses, the
// *_bytes functions give sizes of workspaces on the device and on the host.
struct Functions {
  LibraryFunction<int(void** handle)> create;
  LibraryFunction<int(void** params)> create_params;
  LibraryFunction<int(void* handle, void* stream)> set_stream;
  LibraryFunction<int(void* handle, int mode)> set_deterministic;
  LibraryFunction<int(void* handle, void* params, int64_t m, int64_t n, int type, const void* a, int64_t lda,
                      int compute, size_t* device, size_t* host)>
      lu_bytes;
  LibraryFunction<int(void* handle, void* params, int64_t m, int64_t n, int type, void* a, int64_t lda, int64_t* pivots,
                      int compute, void* device, size_t device_bytes, void* host, size_t host_bytes, int* info)>
      lu;
  LibraryFunction<int(void* handle, void* params, int operation, int64_t n, int64_t k, int type, const void* lu,
                      int64_t ld, const int64_t* pivots, int type_b, void* b, int64_t ldb, int* info)>
      lu_solve;
  LibraryFunction<int(void* handle, void* params, int fill, int64_t n, int type, const void* a, int64_t lda,
                      int compute, size_t* device, size_t* host)>
      cholesky_bytes;
  LibraryFunction<int(void* handle, void* params, int fill, int64_t n, int type, void* a, int64_t lda, int compute,
                      void* device, size_t device_bytes, void* host, size_t host_bytes, int* info)>
      cholesky;
  LibraryFunction<int(void* handle, void* params, int64_t m, int64_t n, int type, const void* a, int64_t lda,
                      int type_tau, const void* tau, int compute, size_t* device, size_t* host)>
      qr_bytes;
  LibraryFunction<int(void* handle, void* params, int64_t m, int64_t n, int type, void* a, int64_t lda, int type_tau,
                      void* tau, int compute, void* device, size_t device_bytes, void* host, size_t host_bytes,
                      int* info)>
      qr;
  // One for each dtype; their workspaces are counted in elements.
  LibraryFunction<int(void* handle, int m, int n, int k, const void* a, int lda, const void* tau, int* elements)>
      reflections_size[4];
  LibraryFunction<int(void* handle, int m, int n, int k, void* a, int lda, const void* tau, void* device, int elements,
                      int* info)>
      reflections[4];
  LibraryFunction<int(void* handle, void* params, int mode, int fill, int64_t n, int type, const void* a, int64_t lda,
                      int type_w, const void* w, int compute, size_t* device, size_t* host)>
      hermitian_bytes;
  LibraryFunction<int(void* handle, void* params, int mode, int fill, int64_t n, int type, void* a, int64_t lda,
                      int type_w, void* w, int compute, void* device, size_t device_bytes, void* host,
                      size_t host_bytes, int* info)>
      hermitian;
  LibraryFunction<int(void* handle, void* params, signed char u_job, signed char vt_job, int64_t m, int64_t n, int type,
                      const void* a, int64_t lda, int type_s, const void* s, int type_u, const void* u, int64_t ldu,
                      int type_vt, const void* vt, int64_t ldvt, int compute, size_t* device, size_t* host)>
      singular_bytes;
  LibraryFunction<int(void* handle, void* params, signed char u_job, signed char vt_job, int64_t m, int64_t n, int type,
                      void* a, int64_t lda, int type_s, void* s, int type_u, void* u, int64_t ldu, int type_vt,
                      void* vt, int64_t ldvt, int compute, void* device, size_t device_bytes, void* host,
                      size_t host_bytes, int* info)>
      singular;
  LibraryFunction<int(void* handle, void* params, int left, int right, int64_t n, int type, const void* a, int64_t lda,
                      int type_w, const void* w, int type_vl, const void* vl, int64_t ldvl, int type_vr, const void* vr,
                      int64_t ldvr, int compute, size_t* device, size_t* host)>
      general_bytes;
  LibraryFunction<int(void* handle, void* params, int left, int right, int64_t n, int type, void* a, int64_t lda,
                      int type_w, void* w, int type_vl, void* vl, int64_t ldvl, int type_vr, void* vr, int64_t ldvr,
                      int compute, void* device, size_t device_bytes, void* host, size_t host_bytes, int* info)>
      general;

  // cuBLAS
  LibraryFunction<int(void** handle)> create_blas;
  LibraryFunction<int(void* handle, void* stream)> set_blas_stream;
  LibraryFunction<int(void* handle, void* device, size_t bytes)> set_blas_workspace;
  LibraryFunction<int(void* handle, int side, int fill, int operation, int diagonal, int64_t m, int64_t n,
                      const void* alpha, const void* a, int64_t lda, void* b, int64_t ldb)>
      substitute[4];
  // Many matrices in one call: arrays of their addresses lie on the device. The info of lu_solve_many is the host's.
  LibraryFunction<int(void* handle, int side, int fill, int operation, int diagonal, int m, int n, const void* alpha,
                      const void* a, int lda, const void* b, int ldb, int count)>
      substitute_many[4];
  LibraryFunction<int(void* handle, int n, const void* a, int lda, int* pivots, int* info, int count)> lu_many[4];
  LibraryFunction<int(void* handle, int operation, int n, int k, const void* lu, int lda, const int* pivots,
                      const void* b, int ldb, int* info, int count)>
      lu_solve_many[4];
  LibraryFunction<int(void* handle, int fill, int n, void* a, int lda, int* info, int count)> cholesky_many[4];
};

// `functions` is called by the first large matrix: null if cuSOLVER or cuBLAS is not available.
TG_API void use_solver(const Functions* (*functions)());

}  // namespace tapegrad::cuda::solver_api
