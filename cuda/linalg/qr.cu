// QR factors and products of reflections: by the library for large matrices, else a block of threads per matrix.
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/linalg/block_lu.h"
#include "tapegrad/cuda/linalg/block_qr.h"
#include "tapegrad/cuda/linalg/factor/large.h"

namespace tapegrad::cuda {
namespace {

template <class T>
TG_KERNEL void factor_kernel(MatrixBatch<T> a, MatrixBatch<T> out, int64_t ld, T* tau) {
  TG_SHARED(real_t<T>, scratch, kWarp);
  const int64_t k = a.rows < a.cols ? a.rows : a.cols;
  for (int64_t m = block_index(); m < a.count; m += grid_size()) {
    block_load(a[m], a.row, a.col, a.rows, a.cols, out[m], ld);
    block_qr(out[m], ld, a.rows, a.cols, tau + m * k, scratch);
  }
}

// q = H_0 H_1 ... of the reflections below the diagonal of a; `many` of them.
template <class T>
TG_KERNEL void product_kernel(MatrixBatch<T> a, int64_t lda, const T* tau, int64_t many, MatrixBatch<T> q,
                              int64_t ldq) {
  for (int64_t m = block_index(); m < q.count; m += grid_size())
    block_reflections<T>(a[m], lda, tau + m * many, many, 0, q[m], ldq, q.rows, q.cols);
}

// By columns.
Tensor matrices_like(const Tensor& A) {
  DimVector sizes(A.sizes());
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  return raw::transpose(empty_tensor(sizes, A.dtype(), A.device()), -2, -1);
}

template <class T>
void factor(const Work& work, const Tensor& A, const Tensor& out, const Tensor& tau) {
  if (large::qr(work, A, out, tau)) return;
  const MatrixBatch<T> a(A, 2), to(out, 2);
  launch_matrices(work, &factor_kernel<T>, a.count, std::max(a.rows, a.cols), a, to, to.leading(), target_of<T>(tau));
}
template <class T>
void product(const Work& work, const Tensor& A, const Tensor& tau, const Tensor& Q) {
  if (large::reflections(work, A, tau, Q)) return;
  const MatrixBatch<T> a(A, 2), q(Q, 2);
  launch_matrices(work, &product_kernel<T>, q.count, std::max(q.rows, q.cols), a, a.leading(), data_of<T>(tau),
                  tau.size(-1), q, q.leading());
}

}  // namespace

void qr_cuda(const Tensor& A, std::string_view mode, const Tensor& Q, const Tensor& R) {
  const Work work(A.device(), {&A, &Q, &R});
  const int64_t k = std::min(A.size(-1), A.size(-2));
  const Tensor factors = matrices_like(A);
  dispatch_lapack(A.dtype(), [&]<class T>() {
    const MatrixBatch<T> f(factors, 2), r(R, 2);
    const Tensor tau = empty_tensor({f.count, k}, A.dtype(), A.device());
    factor<T>(work, A, factors, tau);
    for_elements(work, R.numel(), TrianglePart<T>{f, r, true, false});
    if (mode != "r") product<T>(work, factors, tau, Q);
  });
}

void geqrf_cuda(const Tensor& input, const Tensor& a, const Tensor& tau) {
  const Work work(input.device(), {&input, &a, &tau});
  dispatch_lapack(input.dtype(), [&]<class T>() { factor<T>(work, input, a, tau); });
}

void householder_product_cuda(const Tensor& A, const Tensor& tau, const Tensor& out) {
  const Tensor factors = matrices_like(A), taus = contiguous_or_copy(tau);
  copy_any(factors, A, true);
  const Work work(A.device(), {&factors, &taus, &out});
  dispatch_lapack(A.dtype(), [&]<class T>() { product<T>(work, factors, taus, out); });
}

}  // namespace tapegrad::cuda
