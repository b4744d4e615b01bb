// LU and Cholesky factors, inverses, determinants and solutions of linear equations: by the library for large matrices,
// else a block of threads per matrix.
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/value_fault.h"
#include "tapegrad/cuda/linalg/block_lu.h"
#include "tapegrad/cuda/linalg/factor/large.h"

namespace tapegrad::cuda {
namespace {

template <class T>
TG_KERNEL void cholesky_kernel(MatrixBatch<T> a, MatrixBatch<T> out, MatrixBatch<int> infos, bool upper) {
  const int64_t n = a.rows;
  for (int64_t m = block_index(); m < a.count; m += grid_size()) {
    // The transposed upper factor is the lower factor of the transposed matrix.
    const T* from = a[m];
    T* l = out[m];
    const int64_t row = upper ? out.col : out.row, col = upper ? out.row : out.col;
    const int64_t from_row = upper ? a.col : a.row, from_col = upper ? a.row : a.col;
    each_element(0, n, 0, n, [&](int64_t i, int64_t j) {
      l[i * row + j * col] = i >= j ? from[i * from_row + j * from_col] : T(0);
    });
    block_sync();
    int info = 0;
    for (int64_t j = 0; j < n; ++j) {
      const real_t<T> d = real_part(l[j * row + j * col]);
      block_sync();  // all have read
      if (!(d > 0)) {
        info = static_cast<int>(j + 1);
        break;
      }
      const real_t<T> root = std::sqrt(d), scale = 1 / root;
      for (int64_t i = j + thread_index(); i < n; i += block_size()) {
        T& v = l[i * row + j * col];
        v = i == j ? T(root) : times(scale, v);
      }
      block_sync();
      each_element(j + 1, n, j + 1, n, [&](int64_t i, int64_t k) {
        if (i >= k)
          l[i * row + k * col] =
              minus_product(l[i * row + k * col], l[i * row + j * col], math::conj(l[k * row + j * col]));
      });
      block_sync();
    }
    if (thread_index() == 0) *infos[m] = info;
  }
}

template <class T>
TG_KERNEL void factor_kernel(MatrixBatch<T> a, MatrixBatch<T> lu, int64_t ld, int* pivots, int* infos) {
  TG_SHARED(Pivot<real_t<T>>, scratch, kWarp);
  const int64_t k = a.rows < a.cols ? a.rows : a.cols;
  for (int64_t m = block_index(); m < a.count; m += grid_size()) {
    block_load(a[m], a.row, a.col, a.rows, a.cols, lu[m], ld);
    const int info = block_lu(lu[m], ld, a.rows, a.cols, pivots + m * k, scratch);
    if (infos != nullptr && thread_index() == 0) infos[m] = info;
  }
}

// The results `pivots` and `info` are dense, as their shape functions say.
template <class T>
void factor(const Work& work, const Tensor& A, const Tensor& LU, const Tensor& pivots, const Tensor& info) {
  if (large::lu(work, A, LU, pivots, info)) return;
  const MatrixBatch<T> a(A, 2), lu(LU, 2);
  launch_matrices(work, &factor_kernel<T>, a.count, std::min(a.rows, a.cols), a, lu, lu.leading(),
                  target_of<int>(pivots), info.defined() ? target_of<int>(info) : nullptr);
}

// x = a^-1 b for each element of x's batch.
template <class T>
TG_KERNEL void solve_kernel(MatrixBatch<T> lu, MatrixBatch<int> pivots, MatrixBatch<T> b, MatrixBatch<T> x, int64_t ldx,
                            bool adjoint) {
  for (int64_t m = block_index(); m < x.count; m += grid_size()) {
    block_load(b[m], b.row, b.col, x.rows, x.cols, x[m], ldx);
    block_lu_solve<T>(lu[m], lu.row, lu.col, pivots[m], adjoint, x.rows, x[m], ldx, x.cols);
  }
}
// Pivots within bounds.
template <class T>
void substitute_factors(const Work& work, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool adjoint,
                        const Tensor& X) {
  if (large::lu_solve(work, LU, pivots, B, adjoint, X)) return;
  const IntSpan batch = batch_of(X);
  const MatrixBatch<T> x(X, 2);
  launch_matrices(work, &solve_kernel<T>, x.count, std::max(x.rows, x.cols), MatrixBatch<T>(LU, 2, batch),
                  MatrixBatch<int>(pivots, 1, batch), MatrixBatch<T>(B, 2, batch), x, x.leading(), adjoint);
}
template <class T>
TG_KERNEL void invert_kernel(MatrixBatch<T> lu, const int* pivots, const int* infos, MatrixBatch<T> x, int64_t ldx) {
  const int64_t n = x.rows;
  for (int64_t m = block_index(); m < x.count; m += grid_size()) {
    T* to = x[m];
    each_element(0, n, 0, n, [&](int64_t i, int64_t j) { to[i + j * ldx] = T(i == j ? 1 : 0); });
    block_sync();
    if (infos[m] == 0) block_lu_solve<T>(lu[m], lu.row, lu.col, pivots + m * n, false, n, to, ldx, n);
  }
}
template <class T>
TG_KERNEL void substitute_kernel(MatrixBatch<T> a, MatrixBatch<T> b, MatrixBatch<T> x, int64_t ldx, bool upper,
                                 bool unit) {
  for (int64_t m = block_index(); m < x.count; m += grid_size()) {
    block_load(b[m], b.row, b.col, x.rows, x.cols, x[m], ldx);
    block_substitute(Triangle<T>{a[m], a.row, a.col, false, upper, unit}, x.rows, x[m], ldx, x.cols);
  }
}

template <class T>
struct Determinant {
  MatrixBatch<T> lu;
  const int* pivots;
  T* out;
  TG_DEVICE void operator()(int64_t m) const {
    const T* a = lu[m];
    T product(1);
    for (int64_t j = 0; j < lu.rows; ++j) {
      product = math::mul(product, a[j * lu.row + j * lu.col]);
      if (pivots[m * lu.rows + j] != j + 1) product = math::neg(product);
    }
    out[m] = product;
  }
};
template <class T>
struct LogDeterminant {
  MatrixBatch<T> lu;
  const int* pivots;
  T* sign;
  real_t<T>* log;
  TG_DEVICE void operator()(int64_t m) const {
    const T* a = lu[m];
    T product(1);
    real_t<T> sum = 0;
    for (int64_t j = 0; j < lu.rows; ++j) {
      const T value = a[j * lu.row + j * lu.col];
      const real_t<T> size = math::abs(value);
      product = size == 0 ? T(0) : math::mul(product, times(1 / size, value));
      sum += math::log(size);
      if (pivots[m * lu.rows + j] != j + 1) product = math::neg(product);
    }
    sign[m] = product;
    log[m] = sum;
  }
};

struct CheckPivots {
  const int* pivots;
  int64_t rows;
  FaultRecord* fault;
  FaultText sentence;
  int* checked;  // within bounds, for those who go on with them
  TG_DEVICE void operator()(int64_t i) const {
    const int p = pivots[i];
    const bool good = p >= 1 && p <= rows;
    if (!good) record_value_fault(fault, sentence, p);
    checked[i] = good ? p : 1;
  }
};
Tensor checked_pivots(const Tensor& pivots, int64_t rows, const char* sentence) {
  const Tensor dense = contiguous_or_copy(pivots);
  const Tensor checked = empty_tensor(dense.sizes(), DType::int32, dense.device());
  const Work work(dense.device(), {&dense});
  for_elements(
      work, dense.numel(),
      CheckPivots{data_of<int>(dense), rows, fault_record(dense.device().index), sentence, target_of<int>(checked)});
  return checked;
}
struct OrderOf {
  const int* pivots;
  int64_t* out;
  int64_t many, rows;
  TG_DEVICE void operator()(int64_t m) const {
    int64_t* to = out + m * rows;
    for (int64_t j = 0; j < rows; ++j) to[j] = j;
    for (int64_t j = 0; j < many; ++j) {
      const int64_t p = pivots[m * many + j] - 1, v = to[j];
      to[j] = to[p];
      to[p] = v;
    }
  }
};

}  // namespace

void cholesky_ex_cuda(const Tensor& A, bool upper, bool check_errors, const Tensor& L, const Tensor& info) {
  {
    const Work work(A.device(), {&A, &L, &info});
    if (!large::cholesky(work, A, upper, L, info))
      dispatch_lapack(A.dtype(), [&]<class T>() {
        const MatrixBatch<T> a(A, 2), out(L, 2);
        launch_matrices(work, &cholesky_kernel<T>, a.count, a.rows, a, out, MatrixBatch<int>(info, 0), upper);
      });
  }
  if (check_errors) check_infos("linalg.cholesky", info, kNotPositive);
}

void lu_factor_ex_cuda(const Tensor& A, bool, bool check_errors, const Tensor& LU, const Tensor& pivots,
                       const Tensor& info) {
  {
    const Work work(A.device(), {&A, &LU, &pivots, &info});
    dispatch_lapack(A.dtype(), [&]<class T>() { factor<T>(work, A, LU, pivots, info); });
  }
  if (check_errors) check_infos("linalg.lu_factor", info, kSingular);
}

void inv_ex_cuda(const Tensor& A, bool check_errors, const Tensor& inverse, const Tensor& info) {
  {
    const Work work(A.device(), {&A, &inverse, &info});
    const Tensor LU = empty_tensor(A.sizes(), A.dtype(), A.device());
    const int64_t n = A.size(-1);
    const Tensor pivots = empty_tensor(batch_of(A, 1), DType::int32, A.device());
    dispatch_lapack(A.dtype(), [&]<class T>() {
      const Tensor columns = raw::transpose(LU, -2, -1);
      factor<T>(work, A, columns, pivots, info);
      if (large::lu_solve(work, columns, pivots, {}, false, inverse)) return;
      const MatrixBatch<T> x(inverse, 2);
      launch_matrices(work, &invert_kernel<T>, x.count, n, MatrixBatch<T>(columns, 2), data_of<int>(pivots),
                      data_of<int>(info), x, x.leading());
    });
  }
  if (check_errors) check_infos("linalg.inv", info, kNotInvertible);
}

void solve_cuda(const Tensor& A, const Tensor& B, const Tensor& X, const Tensor& LU, const Tensor& pivots,
                const Tensor& info) {
  const Work work(A.device(), {&A, &B, &X, &LU, &pivots, &info});
  dispatch_lapack(A.dtype(), [&]<class T>() {
    factor<T>(work, A, LU, pivots, info);
    substitute_factors<T>(work, LU, pivots, B, false, X);
  });
}

void lu_solve_cuda(const Tensor& LU, const Tensor& pivots, const Tensor& B, bool adjoint, const Tensor& X) {
  const Tensor checked =
      checked_pivots(pivots, LU.size(-1), "linalg.lu_solve: pivots must be between 1 and the number of rows");
  const Work work(LU.device(), {&LU, &checked, &B, &X});
  dispatch_lapack(LU.dtype(), [&]<class T>() { substitute_factors<T>(work, LU, checked, B, adjoint, X); });
}

void solve_triangular_cuda(const Tensor& A, const Tensor& B, bool upper, bool unitriangular, const Tensor& X) {
  const Work work(A.device(), {&A, &B, &X});
  if (large::substitute(work, A, B, upper, unitriangular, X)) return;
  dispatch_lapack(A.dtype(), [&]<class T>() {
    const MatrixBatch<T> x(X, 2);
    launch_matrices(work, &substitute_kernel<T>, x.count, std::max(x.rows, x.cols), MatrixBatch<T>(A, 2, batch_of(X)),
                    MatrixBatch<T>(B, 2, batch_of(X)), x, x.leading(), upper, unitriangular);
  });
}

void det_cuda(const Tensor& A, const Tensor& result, const Tensor& LU, const Tensor& pivots) {
  const Work work(A.device(), {&A, &result, &LU, &pivots});
  dispatch_lapack(A.dtype(), [&]<class T>() {
    factor<T>(work, A, LU, pivots, {});
    for_elements(work, result.numel(),
                 Determinant<T>{MatrixBatch<T>(LU, 2), data_of<int>(pivots), target_of<T>(result)});
  });
}

void slogdet_cuda(const Tensor& A, const Tensor& sign, const Tensor& logabsdet, const Tensor& LU,
                  const Tensor& pivots) {
  const Work work(A.device(), {&A, &sign, &logabsdet, &LU, &pivots});
  dispatch_lapack(A.dtype(), [&]<class T>() {
    factor<T>(work, A, LU, pivots, {});
    for_elements(work, sign.numel(),
                 LogDeterminant<T>{MatrixBatch<T>(LU, 2), data_of<int>(pivots), target_of<T>(sign),
                                   target_of<real_t<T>>(logabsdet)});
  });
}

void pivots_to_order_cuda(const Tensor& pivots, int64_t rows, const Tensor& out) {
  const Tensor checked = checked_pivots(pivots, rows, "lu_unpack: pivots must be between 1 and the number of rows");
  const Work work(out.device(), {&checked, &out});
  const int64_t many = pivots.size(-1);
  for_elements(work, rows == 0 ? 0 : out.numel() / rows,
               OrderOf{data_of<int>(checked), target_of<int64_t>(out), many, rows});
}

}  // namespace tapegrad::cuda
