#include "tapegrad/cuda/linalg/factor/large.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/linalg/factor/solver.h"

namespace tapegrad::cuda::large {
namespace {

struct NarrowPivots {
  const int64_t* from;
  int* to;
  int64_t rows;
  // What the library writes where a column has no finite element is not known.
  TG_DEVICE void operator()(int64_t i) const {
    to[i] = static_cast<int>(from[i] < 1 ? 1 : from[i] > rows ? rows : from[i]);
  }
};

// The info of LU factors: the number of the first zero on the diagonal. Of Cholesky factors: what the library says
// (theirs), or the first on the diagonal that is not positive, which NaN is not.
template <class T>
TG_KERNEL void diagonal_kernel(MatrixBatch<T> a, const int* theirs, int* infos) {
  TG_SHARED(int64_t, scratch, kWarp);
  const int64_t n = a.rows < a.cols ? a.rows : a.cols;
  for (int64_t m = block_index(); m < a.count; m += grid_size()) {
    const T* from = a[m];
    int64_t left = 0;  // elements from the first such one on
    for (int64_t j = thread_index(); j < n; j += block_size()) {
      const T v = from[j * (a.row + a.col)];
      const bool bad = theirs == nullptr ? v == T(0) : !(real_part(v) > 0);
      if (bad && n - j > left) left = n - j;
    }
    left = block_reduce(left, Largest(), scratch);
    block_sync();
    if (thread_index() == 0)
      infos[m] = theirs != nullptr && theirs[m] > 0 ? theirs[m] : left == 0 ? 0 : static_cast<int>(n - left + 1);
  }
}

// For `count` calls of the library with matrices of A's sizes.
Solver* solver_for(const Work& work, const Tensor& A, IntSpan batch, bool to_substitute = false) {
  int64_t count = 1;
  for (const int64_t n : batch) count *= n;
  const int64_t elements = A.size(-2) * A.size(-1);
  if (elements <= kSmallest || count == 0 || (count >= kMany && elements <= kLarge)) return nullptr;
  return solver_of(work, to_substitute);
}

// Matrix number i of a batch of such that are stored by columns.
template <class T>
Columns columns_at(const Matrices<T>& all, int64_t i) {
  return {all[i], all.rows, all.cols, all.leading()};
}
// A itself where its columns are dense, else a copy.
Tensor by_columns(const Tensor& A) {
  if (A.stride(-2) == 1 && A.stride(-1) >= A.size(-2)) return A;
  const Tensor copy = empty_tensor(columns_spec(batch_of(A), A.size(-2), A.size(-1), A.dtype(), A.device()));
  copy_any(copy, A, true);
  return copy;
}
void copy_broadcast(const Tensor& to, const Tensor& from) { copy_any(to, raw::expand(from, to.sizes()), true); }

Tensor infos_of(IntSpan batch, Device device) { return empty_tensor(batch, DType::int32, device); }

}  // namespace

bool lu(const Work& work, const Tensor& A, const Tensor& LU, const Tensor& pivots, const Tensor& info) {
  Solver* const solver = solver_for(work, A, batch_of(A));
  if (solver == nullptr) return false;
  copy_any(LU, A, true);
  const Tensor wide = empty_tensor(pivots.sizes(), DType::int64, A.device()),
               theirs = infos_of(batch_of(A), A.device());
  dispatch_lapack(A.dtype(), [&]<class T>() {
    const Matrices<T> a(LU, 2);
    for (int64_t i = 0; i < a.count; ++i)
      solver->lu(work, A.dtype(), columns_at(a, i), target_of<int64_t>(wide) + i * std::min(a.rows, a.cols),
                 target_of<int>(theirs) + i);
    if (info.defined())
      launch_matrices(work, &diagonal_kernel<T>, a.count, std::min(a.rows, a.cols), MatrixBatch<T>(LU, 2),
                      static_cast<const int*>(nullptr), target_of<int>(info));
  });
  for_elements(work, pivots.numel(), NarrowPivots{data_of<int64_t>(wide), target_of<int>(pivots), A.size(-2)});
  return true;
}

bool lu_solve(const Work& work, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool adjoint,
              const Tensor& X) {
  Solver* const solver = solver_for(work, LU, batch_of(X));
  if (solver == nullptr || X.numel() == 0) return false;
  const Tensor factors = by_columns(LU), wide = raw::_to_copy(pivots, DType::int64);
  const Tensor theirs = infos_of({1}, LU.device());
  if (B.defined()) {
    copy_broadcast(X, B);
  } else {
    raw::zero_(X);
    raw::fill_(raw::diagonal(X, 0, -2, -1), 1);
  }
  dispatch_lapack(LU.dtype(), [&]<class T>() {
    const Matrices<T> lu(factors, 2, batch_of(X)), x(X, 2);
    const Matrices<int64_t> order(wide, 1, batch_of(X));
    for (int64_t i = 0; i < x.count; ++i)
      solver->lu_solve(work, LU.dtype(), columns_at(lu, i), order[i], adjoint, columns_at(x, i),
                       target_of<int>(theirs));
  });
  return true;
}

bool cholesky(const Work& work, const Tensor& A, bool upper, const Tensor& L, const Tensor& info) {
  Solver* const solver = solver_for(work, A, batch_of(A));
  if (solver == nullptr) return false;
  const Tensor theirs = infos_of(batch_of(A), A.device());
  dispatch_lapack(A.dtype(), [&]<class T>() {
    for_elements(work, L.numel(), TrianglePart<T>{MatrixBatch<T>(A, 2), MatrixBatch<T>(L, 2), upper, true});
    const Matrices<T> l(L, 2);
    for (int64_t i = 0; i < l.count; ++i)
      solver->cholesky(work, A.dtype(), columns_at(l, i), upper, target_of<int>(theirs) + i);
    launch_matrices(work, &diagonal_kernel<T>, l.count, l.rows, MatrixBatch<T>(L, 2), data_of<int>(theirs),
                    target_of<int>(info));
  });
  return true;
}

bool qr(const Work& work, const Tensor& A, const Tensor& factors, const Tensor& tau) {
  Solver* const solver = solver_for(work, A, batch_of(A));
  if (solver == nullptr) return false;
  copy_any(factors, A, true);
  const Tensor theirs = infos_of({1}, A.device());
  dispatch_lapack(A.dtype(), [&]<class T>() {
    const Matrices<T> a(factors, 2);
    for (int64_t i = 0; i < a.count; ++i)
      solver->qr(work, A.dtype(), columns_at(a, i), target_of<T>(tau) + i * std::min(a.rows, a.cols),
                 target_of<int>(theirs));
  });
  return true;
}

bool reflections(const Work& work, const Tensor& factors, const Tensor& tau, const Tensor& Q) {
  Solver* const solver = solver_for(work, Q, batch_of(Q));
  if (solver == nullptr || Matrices<char>(Q, 2).leading() > std::numeric_limits<int>::max()) return false;
  const int64_t many = tau.size(-1);
  copy_any(raw::narrow(Q, -1, 0, many), raw::narrow(factors, -1, 0, many), true);
  const Tensor theirs = infos_of({1}, Q.device());
  dispatch_lapack(Q.dtype(), [&]<class T>() {
    const Matrices<T> q(Q, 2);
    for (int64_t i = 0; i < q.count; ++i)
      solver->reflections(work, Q.dtype(), columns_at(q, i), data_of<T>(tau) + i * many, many, target_of<int>(theirs));
  });
  return true;
}

bool substitute(const Work& work, const Tensor& A, const Tensor& B, bool upper, bool unit, const Tensor& X) {
  Solver* const solver = solver_for(work, A, batch_of(X), true);
  if (solver == nullptr || X.numel() == 0) return false;
  const bool rows = A.stride(-1) == 1 && A.stride(-2) >= A.size(-1);
  const Tensor columns = rows ? raw::transpose(A, -2, -1) : by_columns(A);
  copy_broadcast(X, B);
  dispatch_lapack(A.dtype(), [&]<class T>() {
    const Matrices<T> a(columns, 2, batch_of(X)), x(X, 2);
    for (int64_t i = 0; i < x.count; ++i)
      solver->substitute(work, A.dtype(), columns_at(a, i), rows, upper != rows, unit, columns_at(x, i));
  });
  return true;
}

}  // namespace tapegrad::cuda::large
