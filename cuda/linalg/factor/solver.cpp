#include "tapegrad/cuda/linalg/factor/solver.h"

#include <atomic>
#include <complex>
#include <vector>

#include "tapegrad/aten/record/device/graph.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/linalg/spectral.h"
#include "tapegrad/cuda/memory/device_allocator.h"
#include "tapegrad/cuda/memory/storage.h"
#include "tapegrad/cuda/runtime/driver.h"
#include "tapegrad/cuda/runtime/per_device.h"

namespace tapegrad::cuda {

using namespace solver_api;

namespace {

// What NVIDIA advises for Hopper, which of all devices wants most.
constexpr size_t kBlasWorkspace = size_t{32} << 20;

std::atomic<const Functions* (*)()> functions_of{nullptr};

const Functions* api() {
  const auto find = functions_of.load(std::memory_order_acquire);
  return find == nullptr ? nullptr : find();
}

void check(int status, const char* call, int no_memory = kSolverNoMemory) {
  if (TG_LIKELY(status == kSuccess)) return;
  TG_CHECK(status != no_memory, OutOfMemory, "cuda: {}: out of memory", call);
  TG_THROW(Runtime, "cuda: {}: error {}", call, status);
}
void check_blas(int status, const char* call) { check(status, call, kBlasNoMemory); }

int operation_of(DType dtype, bool adjoint) { return !adjoint ? kPlain : is_complex(dtype) ? kAdjoint : kTransposed; }

// A handle has memory that is not our allocator's: it may want what that has cached.
template <class F>
int create(const F& function, void** handle) {
  const int status = function(handle);
  if (TG_LIKELY(status == kSuccess)) return status;
  device_allocator(driver().current_device()).empty_cache();
  return function(handle);
}

}  // namespace

void solver_api::use_solver(const Functions* (*functions)()) {
  functions_of.store(functions, std::memory_order_release);
}

Solver::Solver() {
  const Functions& f = *api();
  check(create(f.create, &handle_), "cusolverDnCreate");
  check(f.create_params(&params_), "cusolverDnCreateParams");
  check(f.set_deterministic(handle_, kDeterministic), "cusolverDnSetDeterministicMode");
}

// The scope of a call: alone, and on its stream. No memory is asked for under the lock: short of it, the allocator runs
// Python's collector, and with it other calls.
class Solver::Call {
 public:
  Call(Solver& solver, const Stream& stream)
      : api(*cuda::api()), handle_(solver.handle_), lock_(solver.mutex_), stream_(stream) {
    set_stream();
  }
  // `size(&device, &host)` says how many bytes `run(device, bytes, host, bytes)` needs.
  template <class Size, class Run>
  void with_workspaces(const char* size_call, const Size& size, const char* call, const Run& run) {
    size_t device = 0, host = 0;
    check(size(&device, &host), size_call);
    lock_.unlock();
    const Workspace workspace(device, stream_);
    std::vector<char> scratch(host);
    lock_.lock();
    set_stream();  // another call may have been made meanwhile
    check(run(workspace.data(), device, scratch.data(), host), call);
  }

  const Functions& api;

 private:
  void set_stream() const { check(api.set_stream(handle_, stream_.handle), "cusolverDnSetStream"); }

  void* const handle_;
  std::unique_lock<std::mutex> lock_;
  const Stream stream_;
};

void Solver::lu(const Stream& stream, DType dtype, const Columns& a, int64_t* pivots, int* info) {
  Call call(*this, stream);
  const int type = data_type(dtype);
  call.with_workspaces(
      "cusolverDnXgetrf_bufferSize",
      [&](size_t* device, size_t* host) {
        return call.api.lu_bytes(handle_, params_, a.rows, a.cols, type, a.data, a.ld, type, device, host);
      },
      "cusolverDnXgetrf",
      [&](void* device, size_t device_bytes, void* host, size_t host_bytes) {
        return call.api.lu(handle_, params_, a.rows, a.cols, type, a.data, a.ld, pivots, type, device, device_bytes,
                           host, host_bytes, info);
      });
}

void Solver::lu_solve(const Stream& stream, DType dtype, const Columns& lu, const int64_t* pivots, bool adjoint,
                      const Columns& x, int* info) {
  Call call(*this, stream);
  const int type = data_type(dtype);
  check(call.api.lu_solve(handle_, params_, operation_of(dtype, adjoint), lu.rows, x.cols, type, lu.data, lu.ld, pivots,
                          type, x.data, x.ld, info),
        "cusolverDnXgetrs");
}

void Solver::cholesky(const Stream& stream, DType dtype, const Columns& a, bool upper, int* info) {
  Call call(*this, stream);
  const int type = data_type(dtype), fill = upper ? kUpper : kLower;
  call.with_workspaces(
      "cusolverDnXpotrf_bufferSize",
      [&](size_t* device, size_t* host) {
        return call.api.cholesky_bytes(handle_, params_, fill, a.rows, type, a.data, a.ld, type, device, host);
      },
      "cusolverDnXpotrf",
      [&](void* device, size_t device_bytes, void* host, size_t host_bytes) {
        return call.api.cholesky(handle_, params_, fill, a.rows, type, a.data, a.ld, type, device, device_bytes, host,
                                 host_bytes, info);
      });
}

void Solver::qr(const Stream& stream, DType dtype, const Columns& a, void* tau, int* info) {
  Call call(*this, stream);
  const int type = data_type(dtype);
  call.with_workspaces(
      "cusolverDnXgeqrf_bufferSize",
      [&](size_t* device, size_t* host) {
        return call.api.qr_bytes(handle_, params_, a.rows, a.cols, type, a.data, a.ld, type, tau, type, device, host);
      },
      "cusolverDnXgeqrf",
      [&](void* device, size_t device_bytes, void* host, size_t host_bytes) {
        return call.api.qr(handle_, params_, a.rows, a.cols, type, a.data, a.ld, type, tau, type, device, device_bytes,
                           host, host_bytes, info);
      });
}

void Solver::reflections(const Stream& stream, DType dtype, const Columns& q, const void* tau, int64_t many,
                         int* info) {
  const char* const name = is_complex(dtype) ? "cusolverDnungqr" : "cusolverDnorgqr";
  const int m = static_cast<int>(q.rows), n = static_cast<int>(q.cols), ld = static_cast<int>(q.ld);
  const int at = place_of(dtype);
  Call call(*this, stream);
  int elements = 0;
  call.with_workspaces(
      name,
      [&](size_t* device, size_t*) {
        const int status =
            call.api.reflections_size[at](handle_, m, n, static_cast<int>(many), q.data, ld, tau, &elements);
        *device = static_cast<size_t>(elements) * element_size(dtype);
        return status;
      },
      name,
      [&](void* device, size_t, void*, size_t) {
        return call.api.reflections[at](handle_, m, n, static_cast<int>(many), q.data, ld, tau, device, elements, info);
      });
}

// A call of cuBLAS on its stream. With its own workspace the library may choose another algorithm where several streams
// are in use, and give other bits.
class Solver::BlasCall {
 public:
  BlasCall(Solver& solver, const Stream& stream) : workspace_(kBlasWorkspace, stream), call_(solver, stream) {
    if (solver.blas_ == nullptr) check_blas(create(api().create_blas, &solver.blas_), "cublasCreate");
    check_blas(api().set_blas_stream(solver.blas_, stream.handle), "cublasSetStream");
    check_blas(api().set_blas_workspace(solver.blas_, workspace_.data(), kBlasWorkspace), "cublasSetWorkspace");
  }
  const Functions& api() const { return call_.api; }

 private:
  const Workspace workspace_;  // outside of the call's lock
  Call call_;
};

void Solver::substitute(const Stream& stream, DType dtype, const Columns& a, bool transposed, bool upper, bool unit,
                        const Columns& x) {
  const BlasCall call(*this, stream);
  dispatch_lapack(dtype, [&]<class T>() {
    const T one(1);
    check_blas(call.api().substitute[place_of(dtype)](
                   blas_, kLeft, upper ? kUpper : kLower, transposed ? kTransposed : kPlain,
                   unit ? kUnitDiagonal : kAnyDiagonal, x.rows, x.cols, &one, a.data, a.ld, x.data, x.ld),
               "cublastrsm");
  });
}

void Solver::substitute_many(const Stream& stream, DType dtype, const ManyColumns& a, bool transposed, bool upper,
                             bool unit, const ManyColumns& x) {
  const BlasCall call(*this, stream);
  dispatch_lapack(dtype, [&]<class T>() {
    const T one(1);
    check_blas(call.api().substitute_many[place_of(dtype)](blas_, kLeft, upper ? kUpper : kLower,
                                                           transposed ? kTransposed : kPlain,
                                                           unit ? kUnitDiagonal : kAnyDiagonal, x.rows, x.cols, &one,
                                                           a.addresses, a.ld, x.addresses, x.ld, x.count),
               "cublastrsmBatched");
  });
}

void Solver::lu_many(const Stream& stream, DType dtype, const ManyColumns& a, int* pivots, int* info) {
  const BlasCall call(*this, stream);
  check_blas(call.api().lu_many[place_of(dtype)](blas_, a.rows, a.addresses, a.ld, pivots, info, a.count),
             "cublasgetrfBatched");
}

void Solver::lu_solve_many(const Stream& stream, DType dtype, const ManyColumns& lu, const int* pivots, bool adjoint,
                           const ManyColumns& x) {
  const BlasCall call(*this, stream);
  int refused = 0;  // the number of an argument
  check_blas(
      call.api().lu_solve_many[place_of(dtype)](blas_, operation_of(dtype, adjoint), x.rows, x.cols, lu.addresses,
                                                lu.ld, pivots, x.addresses, x.ld, &refused, x.count),
      "cublasgetrsBatched");
  TG_CHECK(refused == 0, Internal, "cublasgetrsBatched refuses argument {}", -refused);
}

void Solver::cholesky_many(const Stream& stream, DType dtype, const ManyColumns& a, bool upper, int* info) {
  const Call call(*this, stream);
  check(call.api.cholesky_many[place_of(dtype)](handle_, upper ? kUpper : kLower, a.rows,
                                                const_cast<void*>(a.addresses), a.ld, info, a.count),
        "cusolverDnpotrfBatched");
}

bool Solver::spectrum(const Stream& stream, const EigenRequest& r) {
  Call call(*this, stream);
  switch (r.spectrum) {
    case Spectrum::Singular:
      singular(call, r);
      return true;
    case Spectrum::Hermitian:
      hermitian(call, r);
      return true;
    case Spectrum::General:
      return general(call, r);
  }
  return false;
}

void Solver::hermitian(Call& call, const EigenRequest& r) {
  const int type = data_type(r.dtype), real = data_type(to_real(r.dtype)), mode = r.vectors ? kVectors : kNoVectors;
  call.with_workspaces(
      "cusolverDnXsyevd_bufferSize",
      [&](size_t* device, size_t* host) {
        return call.api.hermitian_bytes(handle_, params_, mode, kLower, r.n, type, r.a, r.n, real, r.values, type,
                                        device, host);
      },
      "cusolverDnXsyevd",
      [&](void* device, size_t device_bytes, void* host, size_t host_bytes) {
        return call.api.hermitian(handle_, params_, mode, kLower, r.n, type, r.a, r.n, real, r.values, type, device,
                                  device_bytes, host, host_bytes, r.info);
      });
}

void Solver::singular(Call& call, const EigenRequest& r) {
  const int type = data_type(r.dtype), real = data_type(to_real(r.dtype));
  const signed char u = !r.vectors ? 'N' : r.u_columns == r.m ? 'A' : 'S', vt = r.vectors ? 'A' : 'N';
  call.with_workspaces(
      "cusolverDnXgesvd_bufferSize",
      [&](size_t* device, size_t* host) {
        return call.api.singular_bytes(handle_, params_, u, vt, r.m, r.n, type, r.a, r.m, real, r.values, type, r.u,
                                       r.m, type, r.vh, r.n, type, device, host);
      },
      "cusolverDnXgesvd",
      [&](void* device, size_t device_bytes, void* host, size_t host_bytes) {
        return call.api.singular(handle_, params_, u, vt, r.m, r.n, type, r.a, r.m, real, r.values, type, r.u, r.m,
                                 type, r.vh, r.n, type, device, device_bytes, host, host_bytes, r.info);
      });
}

// The eigenvalues of real matrices as complex numbers; their vectors come packed.
bool Solver::general(Call& call, const EigenRequest& r) {
  const int type = data_type(r.dtype), values = data_type(to_complex(r.dtype));
  const int right = r.vectors ? kVectors : kNoVectors;
  const auto size = [&](size_t* device, size_t* host) {
    return call.api.general_bytes(handle_, params_, kNoVectors, right, r.n, type, r.a, r.n, values, r.values, type,
                                  nullptr, r.n, type, r.u, r.n, type, device, host);
  };
  size_t device_bytes = 0, host_bytes = 0;
  if (size(&device_bytes, &host_bytes) == kNotSupported) return false;
  call.with_workspaces("cusolverDnXgeev_bufferSize", size, "cusolverDnXgeev",
                       [&](void* device, size_t device_bytes, void* host, size_t host_bytes) {
                         return call.api.general(handle_, params_, kNoVectors, right, r.n, type, r.a, r.n, values,
                                                 r.values, type, nullptr, r.n, type, r.u, r.n, type, device,
                                                 device_bytes, host, host_bytes, r.info);
                       });
  return true;
}

bool eigen_by_solver(const Stream& stream, const EigenRequest& request) {
  Solver* const solver = solver_of(stream, false);
  return solver != nullptr && solver->spectrum(stream, request);
}

Solver* solver_of(const Stream& stream, bool only_blas) {
  if (api() == nullptr) return nullptr;
  if (!only_blas && driver().capture_id(stream.handle) != 0) {
    TG_CHECK(!record::makes_graph(), Runtime, "cuda: calls of cuSOLVER cannot be part of a graph");
    return nullptr;
  }
  return &per_device<Solver>(stream.device);
}

}  // namespace tapegrad::cuda
