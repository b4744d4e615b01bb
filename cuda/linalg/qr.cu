// QR factors by Householder reflections H = I - tau v v^H, v[0] = 1, as LAPACK stores them: a block of threads per
// matrix, a warp per column that a reflection is applied to.
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/linalg/block_lu.h"

namespace tapegrad::cuda {
namespace {

struct SumOf {
  template <class T>
  TG_DEVICE T operator()(const T& a, const T& b) const {
    return math::add(a, b);
  }
};

// Columns [first, cols) of c, from row j on, times I - tau v v^H; v lies below the diagonal of column j of a.
template <class T>
TG_DEVICE void block_reflect(const T* v, int64_t j, int64_t m, const T& tau, T* c, int64_t ldc, int64_t first,
                             int64_t cols) {
  const int64_t warps = block_size() / kWarp;
  for (int64_t k = first + warp_index(); k < cols; k += warps) {
    T* column = c + k * ldc;
    T sum = warp_lane() == 0 ? column[j] : T(0);
    for (int64_t i = j + 1 + warp_lane(); i < m; i += kWarp)
      sum = math::add(sum, math::mul(math::conj(v[i]), column[i]));
    sum = math::mul(tau, warp_reduce(sum, SumOf()));
    if (warp_lane() == 0) column[j] = math::sub(column[j], sum);
    for (int64_t i = j + 1 + warp_lane(); i < m; i += kWarp) column[i] = minus_product(column[i], v[i], sum);
  }
  block_sync();
}

template <class T>
TG_DEVICE void block_factor(T* a, int64_t ld, int64_t m, int64_t n, T* tau, real_t<T>* scratch) {
  using R = real_t<T>;
  for (int64_t j = 0; j < m && j < n; ++j) {
    T* column = a + j * ld;
    const T alpha = column[j];
    // The norm of what is below, scaled so that squares neither overflow nor vanish.
    R largest = 0;
    for (int64_t i = j + 1 + thread_index(); i < m; i += block_size()) {
      const R size = math::abs(column[i]);
      largest = size > largest || size != size ? size : largest;
    }
    largest = block_reduce(largest, Largest(), scratch);
    R sum = 0;
    if (largest > 0)
      for (int64_t i = j + 1 + thread_index(); i < m; i += block_size()) {
        const R size = math::abs(column[i]) / largest;
        sum += size * size;
      }
    block_sync();  // the scratch is free again
    const R below = largest * std::sqrt(block_reduce(sum, Sum(), scratch));
    block_sync();  // all have read
    if (below == 0 && imag_part(alpha) == 0) {
      if (thread_index() == 0) tau[j] = T(0);
      continue;
    }
    const R beta = -std::copysign(math::hypot(math::abs(alpha), below), real_part(alpha));
    T factor;
    if constexpr (is_complex_type<T>)
      factor = {(beta - alpha.real()) / beta, -alpha.imag() / beta};
    else
      factor = (beta - alpha) / beta;
    const T scale = math::div(T(1), math::sub(alpha, T(beta)));
    for (int64_t i = j + 1 + thread_index(); i < m; i += block_size()) column[i] = math::mul(scale, column[i]);
    if (thread_index() == 0) {
      column[j] = T(beta);
      tau[j] = factor;
    }
    block_sync();
    block_reflect(column, j, m, math::conj(factor), a, ld, j + 1, n);
  }
}

template <class T>
TG_KERNEL void factor_kernel(MatrixBatch<T> a, MatrixBatch<T> out, int64_t ld, T* tau) {
  TG_SHARED(real_t<T>, scratch, kWarp);
  const int64_t k = a.rows < a.cols ? a.rows : a.cols;
  for (int64_t m = block_index(); m < a.count; m += grid_size()) {
    block_load(a[m], a.row, a.col, a.rows, a.cols, out[m], ld);
    block_factor(out[m], ld, a.rows, a.cols, tau + m * k, scratch);
  }
}

// q = H_0 H_1 ... of the reflections below the diagonal of a; `many` of them.
template <class T>
TG_KERNEL void product_kernel(MatrixBatch<T> a, int64_t lda, const T* tau, int64_t many, MatrixBatch<T> q,
                              int64_t ldq) {
  for (int64_t m = block_index(); m < q.count; m += grid_size()) {
    T* to = q[m];
    each_element(0, q.rows, 0, q.cols, [&](int64_t i, int64_t j) { to[i + j * ldq] = T(i == j ? 1 : 0); });
    block_sync();
    for (int64_t j = many - 1; j >= 0; --j)
      block_reflect<T>(a[m] + j * lda, j, q.rows, tau[m * many + j], to, ldq, j, q.cols);
  }
}

template <class T>
struct UpperPart {
  MatrixBatch<T> from, to;
  TG_DEVICE void operator()(int64_t n) const {
    const int64_t i = n % to.rows, j = n / to.rows % to.cols, m = n / (to.rows * to.cols);
    to[m][i * to.row + j * to.col] = i <= j ? from[m][i * from.row + j * from.col] : T(0);
  }
};

// By columns.
Tensor matrices_like(const Tensor& A) {
  DimVector sizes(A.sizes());
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  return raw::transpose(empty_tensor(sizes, A.dtype(), A.device()), -2, -1);
}

template <class T>
void factor(const Work& work, const Tensor& A, const Tensor& out, const Tensor& tau) {
  const MatrixBatch<T> a(A, 2), to(out, 2);
  launch_matrices(work, &factor_kernel<T>, a.count, std::max(a.rows, a.cols), a, to, to.leading(), target_of<T>(tau));
}
template <class T>
void product(const Work& work, const Tensor& A, const Tensor& tau, int64_t many, const Tensor& Q) {
  const MatrixBatch<T> a(A, 2), q(Q, 2);
  launch_matrices(work, &product_kernel<T>, q.count, std::max(q.rows, q.cols), a, a.leading(), data_of<T>(tau), many, q,
                  q.leading());
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
    for_elements(work, R.numel(), UpperPart<T>{f, r});
    if (mode != "r") product<T>(work, factors, tau, k, Q);
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
  dispatch_lapack(A.dtype(), [&]<class T>() { product<T>(work, factors, taus, tau.size(-1), out); });
}

}  // namespace tapegrad::cuda
