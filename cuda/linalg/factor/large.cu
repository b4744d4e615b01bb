#include "tapegrad/cuda/linalg/factor/large.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/c10/tensor/product.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/linalg/factor/solver.h"

namespace tapegrad::cuda::large {
namespace {

// What the library writes where a column has no finite element is not known.
template <class I>
struct BoundPivots {
  const I* from;
  int* to;
  int64_t rows;
  TG_DEVICE void operator()(int64_t i) const {
    to[i] = static_cast<int>(from[i] < 1 ? 1 : from[i] > rows ? rows : from[i]);
  }
};

template <class T>
struct AddressOf {
  MatrixBatch<T> matrices;
  T** to;
  TG_DEVICE void operator()(int64_t i) const { to[i] = matrices[i]; }
};

// The info of LU factors (where it is wanted): the number of the first zero on the diagonal, unless there is a NaN in
// A's columns up to it, which is then put in its place: cuSOLVER 12.0 makes zeros of a row with NaN (so with more rows
// than columns there may be no such zero). Of Cholesky factors: what the library says (theirs), or the first on the
// diagonal that is not positive, which NaN is not.
template <class T>
TG_KERNEL void diagonal_kernel(MatrixBatch<T> a, MatrixBatch<T> input, const int* theirs, int* infos) {
  TG_SHARED(int64_t, scratch, kWarp);
  const int64_t n = a.rows < a.cols ? a.rows : a.cols;
  for (int64_t m = block_index(); m < a.count; m += grid_size()) {
    T* const from = a[m];
    int64_t left = 0;  // elements from the first such one on
    for (int64_t j = thread_index(); j < n; j += block_size()) {
      const T v = from[j * (a.row + a.col)];
      const bool bad = theirs == nullptr ? v == T(0) : !(real_part(v) > 0);
      if (bad && n - j > left) left = n - j;
    }
    left = block_reduce(left, Largest(), scratch);
    block_sync();
    if (theirs == nullptr && (left != 0 || a.rows > n)) {  // the same in all threads
      const int64_t at = left != 0 ? n - left : n - 1;
      const T* const before = input[m];
      int64_t lost = 0;
      for (int64_t i = thread_index(); i < a.rows * (at + 1); i += block_size())
        if (math::isnan(before[i % a.rows * input.row + i / a.rows * input.col])) lost = 1;
      if (block_reduce(lost, Largest(), scratch) != 0) {
        if (thread_index() == 0) from[at * (a.row + a.col)] = T(std::numeric_limits<real_t<T>>::quiet_NaN());
        left = 0;
      }
      block_sync();
    }
    if (thread_index() == 0 && infos != nullptr)
      infos[m] = theirs != nullptr && theirs[m] > 0 ? theirs[m] : left == 0 ? 0 : static_cast<int>(n - left + 1);
  }
}

// How matrices of m x n are done, of which there is one for each element of the batch.
struct Way {
  Solver* solver = nullptr;  // null: by a block each
  bool many = false;         // in one call
};

// The calls for many take ints, and NVIDIA does not say that elements of a matrix may be more than an int counts.
bool fits_many(int64_t count, int64_t n, int64_t k) { return count <= INT32_MAX && n <= INT16_MAX && k <= INT16_MAX; }

// What is neither triangular equations nor the factors of square matrices.
Way way_of_any(const Work& work, int64_t count, int64_t rows, int64_t cols) {
  const int64_t most = std::min(kLarge, kColumnsForEach * std::min(count, kLarge));
  if (count == 0 || rows * cols <= most * most) return {};
  return {solver_of(work, false), false};
}
Way way_of_lu(const Work& work, int64_t count, int64_t rows, int64_t cols, int64_t k = 1) {
  if (rows != cols) return way_of_any(work, count, rows, cols);
  if (count == 0 || rows <= kSmall) return {};
  const bool many = count > 1 && rows <= kRowsForEach * count && fits_many(count, rows, k);
  return {solver_of(work, many), many};
}
Way way_of_cholesky(const Work& work, int64_t count, int64_t n) {
  if (count == 0 || n <= (count < kFew ? kSmall : kSmallCholesky)) return {};
  return {solver_of(work, false), count >= kFew && fits_many(count, n, n)};
}
Way way_of_triangles(const Work& work, int64_t count, int64_t n, int64_t k) {
  if (count == 0 || k == 0 || n <= kSmall) return {};
  return {solver_of(work, true), count >= kFew && fits_many(count, n, k)};
}

// Matrix number i of a batch of such that are stored by columns.
template <class T>
Columns columns_at(const Matrices<T>& all, int64_t i) {
  return {all[i], all.rows, all.cols, all.leading()};
}
// A itself where its columns are dense, else a copy.
Tensor by_columns(const Tensor& A) {
  if (A.stride(-2) == 1 && A.stride(-1) >= A.size(-2) && A.stride(-1) <= INT32_MAX) return A;
  const Tensor copy = empty_tensor(columns_spec(batch_of(A), A.size(-2), A.size(-1), A.dtype(), A.device()));
  copy_any(copy, A, true);
  return copy;
}
void copy_broadcast(const Tensor& to, const Tensor& from) { copy_any(to, raw::expand(from, to.sizes()), true); }

// Their addresses lie in `memory`, which has to last until the call has been queued.
template <class T>
ManyColumns many_columns(const Work& work, const Tensor& t, IntSpan batch, Tensor& memory) {
  const MatrixBatch<T> all(t, 2, batch);
  memory = empty_tensor({all.count}, DType::int64, t.device());
  T** const to = reinterpret_cast<T**>(target_of<int64_t>(memory));
  for_elements(work, all.count, AddressOf<T>{all, to});
  return {to, static_cast<int>(all.count), static_cast<int>(all.rows), static_cast<int>(all.cols),
          static_cast<int>(all.leading())};
}

Tensor infos_of(IntSpan batch, Device device) { return empty_tensor(batch, DType::int32, device); }

}  // namespace

bool lu(const Work& work, const Tensor& A, const Tensor& LU, const Tensor& pivots, const Tensor& info) {
  const Way way = way_of_lu(work, product(batch_of(A)), A.size(-2), A.size(-1));
  if (way.solver == nullptr) return false;
  copy_any(LU, A, true);
  const Tensor found = empty_tensor(pivots.sizes(), way.many ? DType::int32 : DType::int64, A.device()),
               theirs = infos_of(batch_of(A), A.device());
  dispatch_lapack(A.dtype(), [&]<class T>() {
    const Matrices<T> a(LU, 2);
    if (way.many) {
      Tensor memory;
      way.solver->lu_many(work, A.dtype(), many_columns<T>(work, LU, batch_of(LU), memory), target_of<int>(found),
                          target_of<int>(theirs));
    } else {
      for (int64_t i = 0; i < a.count; ++i)
        way.solver->lu(work, A.dtype(), columns_at(a, i), target_of<int64_t>(found) + i * std::min(a.rows, a.cols),
                       target_of<int>(theirs) + i);
    }
    launch_matrices(work, &diagonal_kernel<T>, a.count, std::min(a.rows, a.cols), MatrixBatch<T>(LU, 2),
                    MatrixBatch<T>(A, 2), static_cast<const int*>(nullptr),
                    info.defined() ? target_of<int>(info) : nullptr);
  });
  if (way.many)
    for_elements(work, pivots.numel(), BoundPivots<int>{data_of<int>(found), target_of<int>(pivots), A.size(-2)});
  else
    for_elements(work, pivots.numel(),
                 BoundPivots<int64_t>{data_of<int64_t>(found), target_of<int>(pivots), A.size(-2)});
  return true;
}

bool lu_solve(const Work& work, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool adjoint,
              const Tensor& X) {
  if (X.numel() == 0) return false;
  const DimVector batch = batch_of(X);
  const Way way = way_of_lu(work, product(batch), LU.size(-2), LU.size(-1), X.size(-1));
  if (way.solver == nullptr) return false;
  const Tensor factors = by_columns(LU);
  if (B.defined()) {
    copy_broadcast(X, B);
  } else {
    raw::zero_(X);
    raw::fill_(raw::diagonal(X, 0, -2, -1), 1);
  }
  dispatch_lapack(LU.dtype(), [&]<class T>() {
    if (way.many) {
      DimVector sizes = batch;
      sizes.push_back(LU.size(-1));
      const Tensor order = raw::contiguous(raw::expand(pivots, sizes));
      Tensor memory[2];
      way.solver->lu_solve_many(work, LU.dtype(), many_columns<T>(work, factors, batch, memory[0]), data_of<int>(order),
                                adjoint, many_columns<T>(work, X, batch, memory[1]));
      return;
    }
    const Tensor wide = raw::_to_copy(pivots, DType::int64), theirs = infos_of({1}, LU.device());
    const Matrices<T> lu(factors, 2, batch), x(X, 2);
    const Matrices<int64_t> order(wide, 1, batch);
    for (int64_t i = 0; i < x.count; ++i)
      way.solver->lu_solve(work, LU.dtype(), columns_at(lu, i), order[i], adjoint, columns_at(x, i),
                           target_of<int>(theirs));
  });
  return true;
}

bool cholesky(const Work& work, const Tensor& A, bool upper, const Tensor& L, const Tensor& info) {
  const Way way = way_of_cholesky(work, product(batch_of(A)), A.size(-1));
  if (way.solver == nullptr) return false;
  const Tensor theirs = infos_of(batch_of(A), A.device());
  dispatch_lapack(A.dtype(), [&]<class T>() {
    const TrianglePart<T> triangle{MatrixBatch<T>(A, 2), MatrixBatch<T>(L, 2), upper, true};
    for_elements(work, L.numel(), triangle);
    const Matrices<T> l(L, 2);
    if (way.many) {
      Tensor memory;
      way.solver->cholesky_many(work, A.dtype(), many_columns<T>(work, L, batch_of(L), memory), upper,
                                target_of<int>(theirs));
      for_elements(work, L.numel(), TrianglePart<T>{triangle.to, triangle.to, upper, false});
    } else {
      for (int64_t i = 0; i < l.count; ++i)
        way.solver->cholesky(work, A.dtype(), columns_at(l, i), upper, target_of<int>(theirs) + i);
    }
    launch_matrices(work, &diagonal_kernel<T>, l.count, l.rows, MatrixBatch<T>(L, 2), MatrixBatch<T>(L, 2),
                    data_of<int>(theirs), target_of<int>(info));
  });
  return true;
}

bool qr(const Work& work, const Tensor& A, const Tensor& factors, const Tensor& tau) {
  Solver* const solver = way_of_any(work, product(batch_of(A)), A.size(-2), A.size(-1)).solver;
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
  if (Matrices<char>(Q, 2).leading() > std::numeric_limits<int>::max()) return false;
  Solver* const solver = way_of_any(work, product(batch_of(Q)), Q.size(-2), Q.size(-1)).solver;
  if (solver == nullptr) return false;
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
  const DimVector batch = batch_of(X);
  const Way way = way_of_triangles(work, product(batch), A.size(-1), X.size(-1));
  if (way.solver == nullptr) return false;
  const bool rows = A.stride(-1) == 1 && A.stride(-2) >= A.size(-1) && A.stride(-2) <= INT32_MAX;
  const Tensor columns = rows ? raw::transpose(A, -2, -1) : by_columns(A);
  copy_broadcast(X, B);
  dispatch_lapack(A.dtype(), [&]<class T>() {
    if (way.many) {
      Tensor memory[2];
      way.solver->substitute_many(work, A.dtype(), many_columns<T>(work, columns, batch, memory[0]), rows,
                                  upper != rows, unit, many_columns<T>(work, X, batch, memory[1]));
      return;
    }
    const Matrices<T> a(columns, 2, batch), x(X, 2);
    for (int64_t i = 0; i < x.count; ++i)
      way.solver->substitute(work, A.dtype(), columns_at(a, i), rows, upper != rows, unit, columns_at(x, i));
  });
  return true;
}

}  // namespace tapegrad::cuda::large
