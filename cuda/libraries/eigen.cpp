// Eigenvalues and singular values of large matrices by cuSOLVER (divide and conquer; QR; QR with shifts for general
// matrices), one matrix at a time.
// Workspaces come from the caching allocator, in the order of the stream; those of the host are the library's scratch
// for a call.
#include <cusolverDn.h>

#include <map>
#include <mutex>
#include <vector>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/libraries/library.h"
#include "tapegrad/cuda/linalg/spectral.h"
#include "tapegrad/cuda/memory/storage.h"
#include "tapegrad/cuda/runtime/per_device.h"
#include "tapegrad/cuda/runtime/relaxed_capture.h"

namespace tapegrad::cuda {
namespace {

#define TG_SOLVER(function) TG_LIBRARY_CALL(cusolver(), function)

void check(cusolverStatus_t status, const char* call) {
  if (TG_LIKELY(status == CUSOLVER_STATUS_SUCCESS)) return;
  TG_CHECK(status != CUSOLVER_STATUS_ALLOC_FAILED, OutOfMemory, "cuda: {}: out of memory", call);
  TG_THROW(Runtime, "cuda: {}: error {}", call, static_cast<int>(status));
}
#define TG_SOLVER_CHECK(function, ...) check(TG_SOLVER(function)(__VA_ARGS__), #function)

cudaDataType real_type(DType dtype) { return to_real(dtype) == DType::float32 ? CUDA_R_32F : CUDA_R_64F; }
cudaDataType complex_type(DType dtype) { return to_real(dtype) == DType::float32 ? CUDA_C_32F : CUDA_C_64F; }
cudaDataType type_of(DType dtype) {
  const bool single = to_real(dtype) == DType::float32;
  if (is_complex(dtype)) return single ? CUDA_C_32F : CUDA_C_64F;
  return single ? CUDA_R_32F : CUDA_R_64F;
}

class Solver {
 public:
  // The current device must be this object's.
  Solver() {
    const RelaxedCapture relaxed;
    TG_SOLVER_CHECK(cusolverDnCreate, &handle_);
    TG_SOLVER_CHECK(cusolverDnCreateParams, &params_);
  }
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  // Returns false, and has done nothing, for what the library does not support.
  bool run(const Stream& stream, const EigenRequest& r) {
    const std::lock_guard lock(mutex_);  // recursive: short of memory, the workspace runs Python's collector
    TG_SOLVER_CHECK(cusolverDnSetStream, handle_, static_cast<cudaStream_t>(stream.handle));
    switch (r.spectrum) {
      case Spectrum::Singular:
        singular(stream, r);
        return true;
      case Spectrum::Hermitian:
        eigen(stream, r);
        return true;
      case Spectrum::General:
        return general(stream, r);
    }
    return false;
  }

 private:
  void eigen(const Stream& stream, const EigenRequest& r) {
    const cudaDataType type = type_of(r.dtype), real = real_type(r.dtype);
    const cusolverEigMode_t mode = r.vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
    size_t device = 0, host = 0;
    TG_SOLVER_CHECK(cusolverDnXsyevd_bufferSize, handle_, params_, mode, CUBLAS_FILL_MODE_LOWER, r.n, type, r.a, r.n,
                    real, r.values, type, &device, &host);
    const Workspace workspace(device, stream);
    std::vector<char> scratch(host);
    TG_SOLVER_CHECK(cusolverDnXsyevd, handle_, params_, mode, CUBLAS_FILL_MODE_LOWER, r.n, type, r.a, r.n, real,
                    r.values, type, workspace.data(), device, scratch.data(), host, r.info);
  }
  void singular(const Stream& stream, const EigenRequest& r) {
    const cudaDataType type = type_of(r.dtype), real = real_type(r.dtype);
    const signed char u = !r.vectors ? 'N' : r.u_columns == r.m ? 'A' : 'S', vt = r.vectors ? 'A' : 'N';
    size_t device = 0, host = 0;
    TG_SOLVER_CHECK(cusolverDnXgesvd_bufferSize, handle_, params_, u, vt, r.m, r.n, type, r.a, r.m, real, r.values,
                    type, r.u, r.m, type, r.vh, r.n, type, &device, &host);
    const Workspace workspace(device, stream);
    std::vector<char> scratch(host);
    TG_SOLVER_CHECK(cusolverDnXgesvd, handle_, params_, u, vt, r.m, r.n, type, r.a, r.m, real, r.values, type, r.u, r.m,
                    type, r.vh, r.n, type, workspace.data(), device, scratch.data(), host, r.info);
  }

  // The eigenvalues of real matrices as complex numbers; their vectors come packed.
  bool general(const Stream& stream, const EigenRequest& r) {
    const cudaDataType type = type_of(r.dtype), values = complex_type(r.dtype);
    const cusolverEigMode_t none = CUSOLVER_EIG_MODE_NOVECTOR, right = r.vectors ? CUSOLVER_EIG_MODE_VECTOR : none;
    size_t device = 0, host = 0;
    const cusolverStatus_t status =
        TG_SOLVER(cusolverDnXgeev_bufferSize)(handle_, params_, none, right, r.n, type, r.a, r.n, values, r.values,
                                              type, nullptr, r.n, type, r.u, r.n, type, &device, &host);
    if (status == CUSOLVER_STATUS_NOT_SUPPORTED) return false;
    check(status, "cusolverDnXgeev_bufferSize");
    const Workspace workspace(device, stream);
    std::vector<char> scratch(host);
    TG_SOLVER_CHECK(cusolverDnXgeev, handle_, params_, none, right, r.n, type, r.a, r.n, values, r.values, type,
                    nullptr, r.n, type, r.u, r.n, type, workspace.data(), device, scratch.data(), host, r.info);
    return true;
  }

  std::recursive_mutex mutex_;
  cusolverDnHandle_t handle_ = nullptr;
  cusolverDnParams_t params_ = nullptr;
};

bool eigen_by_cusolver(const Stream& stream, const EigenRequest& request) {
  if (!cusolver().available()) return false;
  return per_device<Solver>(stream.device).run(stream, request);
}

}  // namespace

TG_API void register_eigen() { eigen_library.store(&eigen_by_cusolver, std::memory_order_release); }

}  // namespace tapegrad::cuda
