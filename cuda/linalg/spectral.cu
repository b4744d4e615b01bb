#include "tapegrad/cuda/linalg/spectral.h"

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/cuda/copy/copy.h"

namespace tapegrad::cuda {

std::atomic<EigenLibrary> eigen_library{nullptr};

void check_convergence(const char* op, const Tensor& info) {
  const Tensor here = raw::to(info, std::nullopt, Device());
  check_infos(op, raw::to(raw::eq(here, kNotFiniteInfo), DType::int32), "the matrix has infinite elements or NaN");
  check_infos(op, here, "the algorithm did not converge: LAPACK says {}");
}

namespace {

// The matrices of a batch by columns and dense, or their adjoints; of a triangle, the whole Hermitian matrix. One with
// infinities or NaN becomes zero, and has its info, because the library may not come to an end.
template <class T>
TG_KERNEL void gather_kernel(MatrixBatch<T> a, bool adjoint, bool triangle, bool upper, T* out, int* infos) {
  TG_SHARED(int, found, kWarp);
  for (int64_t m = block_index(); m < a.count; m += grid_size()) {
    const T* from = a[m];
    T* to = out + m * a.rows * a.cols;
    int bad = 0;
    const int64_t rows = adjoint ? a.cols : a.rows, cols = adjoint ? a.rows : a.cols;
    each_element(0, rows, 0, cols, [&](int64_t i, int64_t j) {
      const bool turned = triangle ? (upper ? i > j : i < j) : adjoint;
      const T x = turned ? math::conj(from[j * a.row + i * a.col]) : from[i * a.row + j * a.col];
      to[i + j * rows] = triangle && i == j ? T(real_part(x)) : x;
      bad |= !math::isfinite(x);
    });
    bad = block_reduce(bad, Largest(), found);
    block_sync();
    if (bad != 0) each_element(0, rows, 0, cols, [&](int64_t i, int64_t j) { to[i + j * rows] = T(0); });
    if (thread_index() == 0) infos[m] = bad != 0 ? kNotFiniteInfo : 0;
  }
}
struct MergeInfos {
  const int* theirs;
  int* infos;
  TG_DEVICE void operator()(int64_t i) const {
    if (infos[i] == 0) infos[i] = theirs[i];
  }
};

// Vectors of real matrices as LAPACK packs them: a pair of conjugate eigenvalues, the one with a positive imaginary
// part first, has the real and the imaginary parts of the first vector in its two columns.
template <class R>
struct UnpackPairs {
  const R* packed;
  const std::complex<R>* values;
  std::complex<R>* vectors;
  int64_t n;
  TG_DEVICE void operator()(int64_t e) const {
    const R im = values[e / n].imag();
    if (im == 0)
      vectors[e] = {packed[e], R(0)};
    else if (im > 0)
      vectors[e] = {packed[e], packed[e + n]};
    else
      vectors[e] = {packed[e - n], -packed[e]};
  }
};

bool for_the_library(const Tensor& A) {
  const int64_t small = std::min(A.size(-1), A.size(-2));
  const int64_t count = A.numel() / std::max<int64_t>(A.size(-1) * A.size(-2), 1);
  return eigen_library.load(std::memory_order_acquire) != nullptr && small > kLibraryEigen &&
         (count < kManyEigen || small > kLargeEigen);
}

// Matrices one after the other, by columns: as a view (*, rows, cols).
Tensor columns_of(const Tensor& A, int64_t rows, int64_t cols) {
  DimVector sizes(batch_of(A));
  sizes.push_back(cols);
  sizes.push_back(rows);
  return raw::transpose(empty_tensor(sizes, A.dtype(), A.device()), -2, -1);
}

template <class T>
T* part(const Tensor& t, int64_t i, int64_t elements) {
  return t.defined() ? static_cast<T*>(t.data_ptr()) + i * elements : nullptr;
}

// The eigenvalues of one matrix of A's.
EigenRequest square_request(const Tensor& A, Spectrum spectrum, const Tensor* vectors, void* a, void* values,
                            int* info) {
  const int64_t n = A.size(-1);
  return {.dtype = A.dtype(),
          .spectrum = spectrum,
          .vectors = vectors != nullptr,
          .m = n,
          .n = n,
          .a = a,
          .values = values,
          .info = info};
}

// Runs `request(i)` for each matrix; false where the library refuses the first.
template <class Request>
bool ask_each(const Work& work, const Tensor& info, int64_t count, const Request& request) {
  const EigenLibrary ask = eigen_library.load(std::memory_order_acquire);
  const Tensor theirs = empty_tensor(info.sizes(), DType::int32, info.device());
  for (int64_t i = 0; i < count; ++i)
    if (!ask(work, request(i, target_of<int>(theirs) + i))) {
      TG_CHECK(i == 0, Runtime, "linalg: the library refuses a part of what it began");
      return false;
    }
  for_elements(work, count, MergeInfos{data_of<int>(theirs), target_of<int>(info)});
  return true;
}

}  // namespace

bool library_eigh(const Work& work, const Tensor& A, bool upper, const Tensor& values, const Tensor* vectors,
                  const Tensor& info) {
  if (!for_the_library(A)) return false;
  const int64_t n = A.size(-1);
  const Tensor columns = vectors != nullptr ? *vectors : columns_of(A, n, n);
  bool done = false;
  dispatch_lapack(A.dtype(), [&]<class T>() {
    const MatrixBatch<T> a(A, 2);
    launch_matrices(work, &gather_kernel<T>, a.count, n, a, false, true, upper, target_of<T>(columns),
                    target_of<int>(info));
    done = ask_each(work, info, a.count, [&](int64_t i, int* theirs) {
      return square_request(A, Spectrum::Hermitian, vectors, part<T>(columns, i, n * n), part<real_t<T>>(values, i, n),
                            theirs);
    });
  });
  return done;
}

bool library_eig(const Work& work, const Tensor& A, const Tensor& values, const Tensor* vectors, const Tensor& info) {
  if (!for_the_library(A)) return false;
  const int64_t n = A.size(-1);
  const Tensor columns = columns_of(A, n, n);
  Tensor right;
  if (vectors != nullptr) right = is_complex(A.dtype()) ? *vectors : columns_of(A, n, n);
  bool done = false;
  dispatch_lapack(A.dtype(), [&]<class T>() {
    using R = real_t<T>;
    const MatrixBatch<T> a(A, 2);
    launch_matrices(work, &gather_kernel<T>, a.count, n, a, false, false, false, target_of<T>(columns),
                    target_of<int>(info));
    done = ask_each(work, info, a.count, [&](int64_t i, int* theirs) {
      EigenRequest request = square_request(A, Spectrum::General, vectors, part<T>(columns, i, n * n),
                                            part<std::complex<R>>(values, i, n), theirs);
      request.u = part<T>(right, i, n * n);
      request.u_columns = vectors != nullptr ? n : 0;
      return request;
    });
    if constexpr (!is_complex_type<T>)
      if (done && vectors != nullptr)
        for_elements(work, a.count * n * n,
                     UnpackPairs<R>{data_of<R>(right), data_of<std::complex<R>>(values),
                                    target_of<std::complex<R>>(*vectors), n});
  });
  return done;
}

bool library_svd(const Work& work, const Tensor& A, const Tensor* U, const Tensor& S, const Tensor* Vh,
                 const Tensor& info) {
  if (!for_the_library(A)) return false;
  const bool adjoint = A.size(-2) < A.size(-1), vectors = U != nullptr;
  const int64_t m = std::max(A.size(-2), A.size(-1)), n = std::min(A.size(-2), A.size(-1));
  const int64_t u_columns = !vectors ? 0 : adjoint ? Vh->size(-2) : U->size(-1);
  const Tensor columns = columns_of(A, m, n);
  // Of the adjoint, whose left vectors are A's right ones.
  Tensor left, right;
  if (vectors) {
    left = adjoint ? columns_of(A, m, u_columns) : *U;
    right = adjoint ? columns_of(A, n, n) : *Vh;
  }
  bool done = false;
  dispatch_lapack(A.dtype(), [&]<class T>() {
    const MatrixBatch<T> a(A, 2);
    launch_matrices(work, &gather_kernel<T>, a.count, m, a, adjoint, false, false, target_of<T>(columns),
                    target_of<int>(info));
    done = ask_each(work, info, a.count, [&](int64_t i, int* theirs) {
      return EigenRequest{A.dtype(),
                          Spectrum::Singular,
                          vectors,
                          m,
                          n,
                          part<T>(columns, i, m * n),
                          part<real_t<T>>(S, i, n),
                          part<T>(left, i, m * u_columns),
                          u_columns,
                          part<T>(right, i, n * n),
                          theirs};
    });
  });
  if (done && vectors && adjoint) {
    copy_any(*U, raw::adjoint(right), true);
    copy_any(*Vh, raw::adjoint(left), true);
  }
  return done;
}

}  // namespace tapegrad::cuda
