// Kernels of inverses, determinants and solvers.
#include "tapegrad/aten/functions_solve.h"
#include "tapegrad/aten/kernels_solve.h"
#include "tapegrad/aten/linalg/blas/stoppable.h"
#include "tapegrad/aten/linalg/factor/parallel_factor.h"
#include "tapegrad/aten/linalg/matrices.h"

namespace tapegrad::cpu {
namespace {

double cube(int64_t n) { return static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n); }
double solve_work(int64_t n, int64_t k) {
  return 2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(k);
}

// A matrix that LAPACK can read: as it lies in memory where it is stored by columns, else copied.
template <class T>
class Columns {
 public:
  Columns(const T* a, int64_t row, int64_t col, int64_t m, int64_t n)
      : data_(a), leading_(std::max<int64_t>({n > 1 ? col : 1, m, 1})) {
    if ((row == 1 || m <= 1) && (n <= 1 || col >= m)) return;
    copy_.resize(static_cast<size_t>(m * n));
    load_columns(a, row, col, m, n, copy_.data(), m);
    data_ = copy_.data();
    leading_ = std::max<int64_t>(m, 1);
  }
  const T* data() const { return data_; }
  int64_t leading() const { return leading_; }

 private:
  const T* data_;
  int64_t leading_;
  std::vector<T> copy_;
};

// The element of `own`, a batch that broadcasts to `all`, that belongs to element i of `all`.
class Broadcast {
 public:
  Broadcast(IntSpan own, IntSpan all) : all_(all), steps_(all.size(), 0) {
    int64_t step = 1;
    for (size_t d = own.size(); d-- > 0;) {
      if (own[d] != 1) steps_[all.size() - own.size() + d] = step;
      step *= own[d];
    }
  }
  int64_t operator()(int64_t i) const {
    int64_t r = 0;
    for (size_t d = all_.size(); d-- > 0;) {
      r += i % all_[d] * steps_[d];
      i /= all_[d];
    }
    return r;
  }

 private:
  DimVector all_, steps_;
};

template <class T>
int factor(const Matrices<const T>& a, const Matrices<T>& lu, const Matrices<int>& pivots, int64_t i) {
  load_columns(a[i], a.row, a.col, a.rows, a.cols, lu[i], lu.leading());
  return a.rows == 0 ? 0 : parallel_getrf(a.rows, a.cols, lu[i], lu.leading(), pivots[i]);
}

}  // namespace

void inv_ex(const Tensor& A, bool check_errors, const Tensor& inverse, const Tensor& info) {
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2);
    Matrices<T> out(inverse, 2);
    Matrices<int> infos(info, 0);
    int64_t n = a.rows;
    // The identity is solved for: more operations than getri's, but over all threads, or without the library.
    auto solve_identity = [&](int64_t i, T* lu, int* order) {
      load_columns(a[i], a.row, a.col, n, n, lu, n);
      *infos[i] = parallel_getrf(n, n, lu, n, order);
      T* to = out[i];
      for (int64_t j = 0; j < n; ++j)
        for (int64_t r = 0; r < n; ++r) to[r + j * out.leading()] = T(r == j);
      if (*infos[i] == 0) parallel_getrs('N', n, n, lu, n, order, to, out.leading());
    };
    for_each_matrix(a.count, 2 * cube(n) + 200, [&](int64_t i) {
      if (n == 0) {
        *infos[i] = 0;
        return;
      }
      if (n <= kSmallFactor) {
        T lu[kSmallFactor * kSmallFactor];
        int order[kSmallFactor];
        return solve_identity(i, lu, order);
      }
      std::vector<int> pivots(static_cast<size_t>(n));
      if (n < kFactorLarge) {
        load_columns(a[i], a.row, a.col, n, n, out[i], out.leading());
        int r = lapack::getrf(n, n, out[i], out.leading(), pivots.data());
        if (r == 0) r = lapack::getri(n, out[i], out.leading(), pivots.data());
        *infos[i] = r;
        return;
      }
      std::vector<T> lu(static_cast<size_t>(n * n));
      solve_identity(i, lu.data(), pivots.data());
    });
  });
  if (check_errors) check_infos("linalg.inv", info, kNotInvertible);
}

void solve(const Tensor& A, const Tensor& B, const Tensor& X, const Tensor& LU, const Tensor& pivots,
           const Tensor& info) {
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2), b(B, 2, batch_of(X));
    Matrices<T> x(X, 2), lu(LU, 2);
    Matrices<int> pivot(pivots, 1), infos(info, 0);
    Broadcast matrix_of(batch_of(A), batch_of(X));
    int64_t n = a.rows, k = b.cols;
    auto substitute = [&](int64_t i, int64_t j) {
      load_columns(b[i], b.row, b.col, n, k, x[i], x.leading());
      // A singular factor divides by zero: linalg.solve raises, solve_ex returns the result with its info.
      parallel_getrs('N', n, k, lu[j], lu.leading(), pivot[j], x[i], x.leading());
    };
    if (a.count == x.count) {
      for_each_matrix(a.count, cube(n) * 2 / 3 + solve_work(n, k) + 200, [&](int64_t i) {
        *infos[i] = factor(a, lu, pivot, i);
        substitute(i, i);
      });
    } else {
      for_each_matrix(a.count, cube(n) * 2 / 3 + 100, [&](int64_t i) { *infos[i] = factor(a, lu, pivot, i); });
      for_each_matrix(x.count, solve_work(n, k) + 100, [&](int64_t i) { substitute(i, matrix_of(i)); });
    }
  });
}

void lu_solve(const Tensor& LU, const Tensor& pivots, const Tensor& B, bool adjoint, const Tensor& X) {
  dispatch_lapack(LU.dtype(), [&]<class T>() {
    Matrices<const T> lu(LU, 2, batch_of(X)), b(B, 2, batch_of(X));
    Matrices<const int> pivot(pivots, 1, batch_of(X));
    Matrices<T> x(X, 2);
    int64_t n = lu.rows, k = b.cols;
    Matrices<const int> own(pivots, 1);
    for (int64_t i = 0; i < own.count; ++i)
      for (int64_t j = 0; j < n; ++j)
        TG_CHECK(own[i][j * own.col] >= 1 && own[i][j * own.col] <= n, Runtime,
                 "linalg.lu_solve: pivots must be greater or equal to 1 and not greater than {}: got {}", n,
                 own[i][j * own.col]);
    for_each_matrix(x.count, solve_work(n, k) + 100, [&](int64_t i) {
      Columns<T> factors(lu[i], lu.row, lu.col, n, n);
      std::vector<int> order(static_cast<size_t>(n));
      for (int64_t j = 0; j < n; ++j) order[static_cast<size_t>(j)] = pivot[i][j * pivot.col];
      load_columns(b[i], b.row, b.col, n, k, x[i], x.leading());
      parallel_getrs(adjoint ? 'C' : 'N', n, k, factors.data(), factors.leading(), order.data(), x[i], x.leading());
    });
  });
}

void solve_triangular(const Tensor& A, const Tensor& B, bool upper, bool unitriangular, const Tensor& X) {
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2, batch_of(X)), b(B, 2, batch_of(X));
    Matrices<T> x(X, 2);
    int64_t n = a.rows, k = b.cols;
    // Rows in memory are the columns of the transposed matrix, whose other triangle it is.
    bool rows = a.col == 1 && a.row >= n && n > 1;
    char uplo = upper != rows ? 'U' : 'L', diag = unitriangular ? 'U' : 'N';
    for_each_matrix(x.count, solve_work(n, k) / 2 + 100, [&](int64_t i) {
      load_columns(b[i], b.row, b.col, n, k, x[i], x.leading());
      if (rows) return parallel_trsm(uplo, 'T', diag, n, k, a[i], a.row, x[i], x.leading());
      Columns<T> factors(a[i], a.row, a.col, n, n);
      parallel_trsm(uplo, 'N', diag, n, k, factors.data(), factors.leading(), x[i], x.leading());
    });
  });
}

void det(const Tensor& A, const Tensor& result, const Tensor& LU, const Tensor& pivots) {
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2);
    Matrices<T> lu(LU, 2), out(result, 0);
    Matrices<int> pivot(pivots, 1);
    for_each_matrix(a.count, cube(a.rows) * 2 / 3 + 100, [&](int64_t i) {
      factor(a, lu, pivot, i);
      T product(1);
      for (int64_t j = 0; j < a.rows; ++j) {
        product *= lu[i][j + j * lu.leading()];
        if (pivot[i][j] != j + 1) product = -product;
      }
      *out[i] = product;
    });
  });
}

void slogdet(const Tensor& A, const Tensor& sign, const Tensor& logabsdet, const Tensor& LU, const Tensor& pivots) {
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2);
    Matrices<T> lu(LU, 2), signs(sign, 0);
    Matrices<lapack::real_t<T>> logs(logabsdet, 0);
    Matrices<int> pivot(pivots, 1);
    for_each_matrix(a.count, cube(a.rows) * 2 / 3 + 200, [&](int64_t i) {
      factor(a, lu, pivot, i);
      T product(1);
      lapack::real_t<T> log = 0;
      for (int64_t j = 0; j < a.rows; ++j) {
        T value = lu[i][j + j * lu.leading()];
        auto magnitude = std::abs(value);
        product = magnitude == 0 ? T(0) : product * (value / magnitude);
        log += std::log(magnitude);
        if (pivot[i][j] != j + 1) product = -product;
      }
      *signs[i] = product;
      *logs[i] = log;
    });
  });
}

void ldl_solve(const Tensor& LD, const Tensor& pivots, const Tensor& B, bool hermitian, const Tensor& X) {
  dispatch_lapack(LD.dtype(), [&]<class T>() {
    Matrices<const T> ld(LD, 2, batch_of(X)), b(B, 2, batch_of(X));
    Matrices<const int> pivot(pivots, 1, batch_of(X)), own(pivots, 1);
    Matrices<T> x(X, 2);
    int64_t n = ld.rows, k = b.cols;
    for (int64_t i = 0; i < own.count; ++i)
      for (int64_t j = 0; j < n; ++j) {
        int p = own[i][j * own.col];
        TG_CHECK(p != 0 && p >= -n && p <= n, Runtime,
                 "linalg.ldl_solve: pivots must be between 1 and {}, or their negatives: got {}", n, p);
        if (p > 0) continue;  // two equal negative ones mark a block of two rows, which LAPACK reads as such
        TG_CHECK(j + 1 < n && own[i][(j + 1) * own.col] == p, Runtime,
                 "linalg.ldl_solve: negative pivots must come in equal pairs: got {} at {}", p, j);
        ++j;
      }
    for_each_matrix(x.count, solve_work(n, k) + 100, [&](int64_t i) {
      Columns<T> factors(ld[i], ld.row, ld.col, n, n);
      std::vector<int> order(static_cast<size_t>(n));
      for (int64_t j = 0; j < n; ++j) order[static_cast<size_t>(j)] = pivot[i][j * pivot.col];
      load_columns(b[i], b.row, b.col, n, k, x[i], x.leading());
      if (n > 0 && k > 0)
        lapack::sytrs(hermitian, n, k, factors.data(), factors.leading(), order.data(), x[i], x.leading());
    });
  });
}

void lstsq(const Tensor& A, const Tensor& B, double rcond, std::string_view driver, const Tensor& solution,
           const Tensor& rank, const Tensor& singular_values) {
  Failures failures;
  dispatch_lapack(A.dtype(), [&]<class T>() {
    using R = lapack::real_t<T>;
    Matrices<const T> a(A, 2), b(B, 2);
    Matrices<T> x(solution, 2);
    bool with_rank = driver != "gels", with_values = driver == "gelsd" || driver == "gelss";
    int64_t m = a.rows, n = a.cols, k = b.cols, small = std::min(m, n), tall = std::max<int64_t>({m, n, 1});
    R bound = static_cast<R>(rcond);
    for_each_matrix(
        a.count, 4 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(small + k) + 500,
        [&](int64_t i) {
          std::vector<T> factors(static_cast<size_t>(m * n)), right(static_cast<size_t>(tall * k));
          load_columns(a[i], a.row, a.col, m, n, factors.data(), std::max<int64_t>(m, 1));
          load_columns(b[i], b.row, b.col, m, k, right.data(), tall);
          std::vector<R> values(static_cast<size_t>(small));
          int found = 0, info = 0;
          if (small == 0 || k == 0) {
            std::fill(right.begin(), right.end(), T(0));
          } else if (!all_finite(factors.data(), m, n, m)) {
            info = Failures::kNotFinite;
          } else {
            using lapack::stoppable::Part;
            const char last = driver.back();  // of gels, gelsy, gelsd or gelss
            const bool plain = driver == "gels";
            info = lapack::stoppable::call(
                8 * lapack::stoppable::volume(m, n) + 2 * static_cast<double>(m * n) * static_cast<double>(k),
                [=](T* f, T* r, R* v, int* s) {
                  return plain         ? lapack::gels(m, n, k, f, m, r, tall)
                         : last == 'y' ? lapack::gelsy(m, n, k, f, m, r, tall, bound, s)
                         : last == 'd' ? lapack::gelsd(m, n, k, f, m, r, tall, v, bound, s)
                                       : lapack::gelss(m, n, k, f, m, r, tall, v, bound, s);
                },
                Part<T>{factors.data(), m * n}, Part<T>{right.data(), tall * k}, Part<R>{values.data(), small},
                Part<int>{&found, 1});
          }
          failures.note(i, info);
          for (int64_t j = 0; j < k; ++j)
            std::copy(right.data() + j * tall, right.data() + j * tall + n, x[i] + j * x.leading());
          if (with_rank) *Matrices<int64_t>(rank, 0)[i] = found;
          if (with_values) std::copy(values.begin(), values.end(), Matrices<R>(singular_values, 1)[i]);
        });
  });
  failures.check("linalg.lstsq", batch_of(A),
                 driver == "gels" ? "the matrix does not have full rank: diagonal element {} of its factor R is zero"
                                  : "the algorithm did not converge: LAPACK says {}");
}

}  // namespace tapegrad::cpu
