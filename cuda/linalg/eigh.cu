// Eigenvalues and eigenvectors of Hermitian matrices: by the library if it accepts them, else a block of threads per
// matrix.
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/linalg/block_eigen.h"
#include "tapegrad/cuda/linalg/spectral.h"

namespace tapegrad::cuda {
namespace {

template <class T>
struct EighArgs {
  MatrixBatch<T> a;
  bool upper, with_vectors;
  MatrixBatch<T> vectors;  // by columns of leading size `ld`
  int64_t ld;
  real_t<T>* values;  // n per matrix, dense
  int* infos;
  // Of each block: two matrices, 2 n elements, 4 n doubles.
  T* matrices;
  double* numbers;
};

template <class T>
TG_KERNEL void eigh_kernel(EighArgs<T> args) {
  using R = real_t<T>;
  TG_SHARED(R, scratch, kWarp);
  TG_SHARED(T, sums, kWarp);
  TG_SHARED(int64_t, turn, 4);
  const int64_t n = args.a.rows;
  T* const a = args.matrices + block_index() * (2 * n * n + 2 * n);
  T *const q = a + n * n, *const tau = q + n * n, *const w = tau + n;
  double* const d = args.numbers + block_index() * 4 * n;
  double *const e = d + n, *const c = e + n, *const s = c + n;
  for (int64_t m = block_index(); m < args.a.count; m += grid_size()) {
    const T* from = args.a[m];
    // The other triangle is the conjugate.
    const auto read = [&](int64_t i, int64_t j) {
      const bool there = args.upper ? i <= j : i >= j;
      return there ? from[i * args.a.row + j * args.a.col] : math::conj(from[j * args.a.row + i * args.a.col]);
    };
    const R scale = block_load_scaled(a, n, n, read, scratch);
    if (scale == 0) {
      if (thread_index() == 0) args.infos[m] = kNotFiniteInfo;
      continue;
    }
    for (int64_t i = thread_index(); i < n; i += block_size()) a[i + i * n] = T(real_part(a[i + i * n]));
    block_sync();
    block_tridiagonal(a, n, n, tau, w, d, e, sums, scratch);
    if (args.with_vectors) block_reflections<T>(a, n, tau, n - 1, 1, q, n, n, n);
    const double eps = static_cast<double>(std::numeric_limits<R>::epsilon()) / 2;
    const int info = block_ql<T>(n, d, e, c, s, args.with_vectors ? q : nullptr, n, n, eps, turn);
    if (thread_index() == 0) args.infos[m] = info;
    // Into ascending order: the place of each is the number of those before it.
    for (int64_t j = thread_index(); j < n; j += block_size()) {
      int64_t place = 0;
      for (int64_t i = 0; i < n; ++i) place += d[i] < d[j] || (d[i] == d[j] && i < j);
      args.values[m * n + place] = static_cast<R>(d[j] / static_cast<double>(scale));
      e[j] = static_cast<double>(place);
    }
    block_sync();
    if (args.with_vectors) {
      T* to = args.vectors[m];
      each_element(0, n, 0, n,
                   [&](int64_t i, int64_t j) { to[i + static_cast<int64_t>(e[j]) * args.ld] = q[i + j * n]; });
    }
    block_sync();
  }
}

void eigen_hermitian(const char* op, const Tensor& A, std::string_view uplo, const Tensor& values,
                     const Tensor* vectors) {
  if (values.numel() == 0) return;
  const Tensor info = empty_tensor(batch_of(A), DType::int32, A.device());
  const bool upper = uplo == "U" || uplo == "u";
  {
    const Work work(A.device(), {&A, &values, &info});
    if (vectors != nullptr) work.use(*vectors);
    if (!library_eigh(work, A, upper, values, vectors, info)) {
      dispatch_lapack(A.dtype(), [&]<class T>() {
        const MatrixBatch<T> a(A, 2);
        const MatrixBatch<T> v(vectors != nullptr ? *vectors : A, 2);
        const int64_t n = a.rows, blocks = blocks_for(a.count, n * n);
        const Workspace matrices(static_cast<size_t>(blocks * (2 * n * n + 2 * n)) * sizeof(T), work);
        const Workspace numbers(static_cast<size_t>(blocks * 4 * n) * sizeof(double), work);
        launch_block(
            work, &eigh_kernel<T>, Grid(blocks), n <= 16 ? kWarp : kBlock, 0,
            EighArgs<T>{a, upper, vectors != nullptr, v, v.leading(), target_of<real_t<T>>(values),
                        target_of<int>(info), static_cast<T*>(matrices.data()), static_cast<double*>(numbers.data())});
      });
    }
  }
  check_convergence(op, info);
}

}  // namespace

void eigh_cuda(const Tensor& A, std::string_view uplo, const Tensor& values, const Tensor& vectors) {
  eigen_hermitian("linalg.eigh", A, uplo, values, &vectors);
}
void eigvalsh_cuda(const Tensor& A, std::string_view uplo, const Tensor& values) {
  eigen_hermitian("linalg.eigvalsh", A, uplo, values, nullptr);
}

}  // namespace tapegrad::cuda
