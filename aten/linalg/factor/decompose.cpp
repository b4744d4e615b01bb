// Kernels of the factorisations: each matrix of a batch is copied into the result by columns and factored there.
#include "tapegrad/aten/functions_decompose.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_decompose.h"
#include "tapegrad/aten/linalg/blas/lapack.h"
#include "tapegrad/aten/linalg/blas/stoppable.h"
#include "tapegrad/aten/linalg/factor/parallel_factor.h"
#include "tapegrad/aten/linalg/factor/parallel_qr.h"
#include "tapegrad/aten/linalg/factor/small_spectral.h"
#include "tapegrad/aten/linalg/matrices.h"

namespace tapegrad::cpu {
namespace {

double cube(int64_t n) { return static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n); }
double work(int64_t m, int64_t n) {
  return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(std::min(m, n));
}

template <class T>
void identity(T* a, int64_t m, int64_t n, int64_t ld) {
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < m; ++i) a[i + j * ld] = T(i == j);
}

}  // namespace

void cholesky_ex(const Tensor& A, bool upper, bool check_errors, const Tensor& L, const Tensor& info) {
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2);
    Matrices<T> l(L, 2);
    Matrices<int> infos(info, 0);
    int64_t n = a.rows, ld = l.leading();
    for_each_matrix(a.count, cube(n) / 3 + 100, [&](int64_t i) {
      const T* from = a[i];
      T* to = l[i];
      for (int64_t j = 0; j < n; ++j) {  // one triangle; the other is zero
        int64_t first = upper ? 0 : j, last = upper ? j + 1 : n;
        std::fill(to + j * ld, to + j * ld + first, T(0));
        for (int64_t r = first; r < last; ++r) to[r + j * ld] = from[r * a.row + j * a.col];
        std::fill(to + j * ld + last, to + j * ld + n, T(0));
      }
      int failed = n == 0 ? 0 : parallel_potrf(upper ? 'U' : 'L', n, to, ld);
      // OpenBLAS takes a minor that is NaN for a positive one.
      for (int64_t j = 0, known = failed > 0 ? failed - 1 : n; j < known; ++j)
        if (std::isnan(std::real(to[j + j * ld]))) {
          failed = static_cast<int>(j + 1);
          break;
        }
      *infos[i] = failed;
    });
  });
  if (check_errors) check_infos("linalg.cholesky", info, kNotPositive);
}

void lu_factor_ex(const Tensor& A, bool, bool check_errors, const Tensor& LU, const Tensor& pivots,
                  const Tensor& info) {
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2);
    Matrices<T> lu(LU, 2);
    Matrices<int> pivot(pivots, 1), infos(info, 0);
    for_each_matrix(a.count, work(a.rows, a.cols) + 100, [&](int64_t i) {
      load_columns(a[i], a.row, a.col, a.rows, a.cols, lu[i], lu.leading());
      *infos[i] = std::min(a.rows, a.cols) == 0 ? 0 : parallel_getrf(a.rows, a.cols, lu[i], lu.leading(), pivot[i]);
    });
  });
  if (check_errors) check_infos("linalg.lu_factor", info, kSingular);
}

void qr(const Tensor& A, std::string_view mode, const Tensor& Q, const Tensor& R) {
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2);
    bool with_q = mode != "r";
    std::optional<Matrices<T>> q;
    if (with_q) q.emplace(Q, 2);
    Matrices<T> r(R, 2);
    int64_t m = a.rows, n = a.cols, k = std::min(m, n), columns = with_q ? q->cols : 0;
    for_each_matrix(a.count, 4 * work(m, n) + 500, [&](int64_t i) {
      std::vector<T> copy;
      // Factored in Q if Q is large enough.
      bool in_q = with_q && columns >= n;
      if (!in_q) copy.resize(static_cast<size_t>(m * n));
      T* w = in_q ? (*q)[i] : copy.data();
      int64_t ld = std::max<int64_t>(m, 1);
      load_columns(a[i], a.row, a.col, m, n, w, ld);
      if constexpr (!is_complex_type<T>)
        if (k > 0 && small_qr(m, n, w, columns, with_q ? (*q)[i] : nullptr, r.rows, r[i])) return;
      std::vector<T> tau(static_cast<size_t>(k));
      if (k > 0) parallel_geqrf(m, n, w, ld, tau.data());
      T* upper = r[i];
      for (int64_t j = 0; j < n; ++j)
        for (int64_t x = 0; x < r.rows; ++x) upper[x + j * r.leading()] = x <= j ? w[x + j * ld] : T(0);
      if (!with_q || columns == 0) return;
      T* to = (*q)[i];
      if (k == 0) return identity(to, m, columns, ld);
      if (!in_q) std::copy(w, w + m * k, to);
      parallel_orgqr(m, columns, k, to, ld, tau.data());
    });
  });
}

void geqrf(const Tensor& input, const Tensor& a_out, const Tensor& tau_out) {
  dispatch_lapack(input.dtype(), [&]<class T>() {
    Matrices<const T> a(input, 2);
    Matrices<T> out(a_out, 2), tau(tau_out, 1);
    for_each_matrix(a.count, 2 * work(a.rows, a.cols) + 200, [&](int64_t i) {
      load_columns(a[i], a.row, a.col, a.rows, a.cols, out[i], out.leading());
      if (tau.cols > 0) parallel_geqrf(a.rows, a.cols, out[i], out.leading(), tau[i]);
    });
  });
}

void householder_product(const Tensor& A, const Tensor& tau, const Tensor& out) {
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2), t(tau, 1);
    Matrices<T> q(out, 2);
    for_each_matrix(a.count, 4 * work(a.rows, a.cols) + 200, [&](int64_t i) {
      if (a.cols == 0) return;
      load_columns(a[i], a.row, a.col, a.rows, a.cols, q[i], q.leading());
      std::vector<T> factors(static_cast<size_t>(t.cols));
      for (int64_t j = 0; j < t.cols; ++j) factors[static_cast<size_t>(j)] = t[i][j * t.col];
      parallel_orgqr(a.rows, a.cols, t.cols, q[i], q.leading(), factors.data());
    });
  });
}

void svd(const Tensor& A, bool full_matrices, const Tensor& U, const Tensor& S, const Tensor& Vh) {
  Failures failures;
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2);
    Matrices<T> u(U, 2), v(Vh, 2);
    Matrices<lapack::real_t<T>> s(S, 1);
    int64_t m = a.rows, n = a.cols;
    for_each_matrix(a.count, 20 * work(m, n) + 1000, [&](int64_t i) {
      if (s.cols == 0) {
        identity(u[i], u.rows, u.cols, u.leading());
        return identity(v[i], v.rows, v.cols, v.leading());
      }
      std::vector<T> copy(static_cast<size_t>(m * n));
      load_columns(a[i], a.row, a.col, m, n, copy.data(), m);
      if (!all_finite(copy.data(), m, n, m)) return failures.note(i, Failures::kNotFinite);
      if constexpr (!is_complex_type<T>)
        if ((m == n || !full_matrices) && small_svd(m, n, copy.data(), u[i], s[i], v[i])) return;
      failures.note(i, lapack::stoppable::gesdd(full_matrices ? 'A' : 'S', m, n, copy.data(), m, s[i], u[i],
                                                u.leading(), v[i], v.leading()));
    });
  });
  failures.check("linalg.svd", batch_of(A));
}

void svdvals(const Tensor& A, const Tensor& S) {
  Failures failures;
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2);
    Matrices<lapack::real_t<T>> s(S, 1);
    int64_t m = a.rows, n = a.cols;
    for_each_matrix(a.count, 4 * work(m, n) + 500, [&](int64_t i) {
      if (s.cols == 0) return;
      std::vector<T> copy(static_cast<size_t>(m * n));
      load_columns(a[i], a.row, a.col, m, n, copy.data(), m);
      T none{};
      failures.note(i, all_finite(copy.data(), m, n, m)
                           ? lapack::stoppable::gesdd('N', m, n, copy.data(), m, s[i], &none, 1, &none, 1)
                           : Failures::kNotFinite);
    });
  });
  failures.check("linalg.svdvals", batch_of(A));
}

namespace {

void eigen_hermitian(const char* op, const Tensor& A, char uplo, const Tensor& values, const Tensor* vectors) {
  Failures failures;
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2);
    Matrices<lapack::real_t<T>> w(values, 1);
    std::optional<Matrices<T>> v;
    if (vectors) v.emplace(*vectors, 2);
    int64_t n = a.rows;
    for_each_matrix(a.count, 9 * cube(n) + 1000, [&](int64_t i) {
      if (n == 0) return;
      std::vector<T> copy;
      if (!v) copy.resize(static_cast<size_t>(n * n));
      T* to = v ? (*v)[i] : copy.data();
      load_columns(a[i], a.row, a.col, n, n, to, n);
      bool finite = true;  // of the triangle that counts
      for (int64_t j = 0; j < n; ++j)
        finite &= uplo == 'L' ? all_finite(to + j + j * n, n - j, 1, n) : all_finite(to + j * n, j + 1, 1, n);
      if (!finite) return failures.note(i, Failures::kNotFinite);
      if constexpr (!is_complex_type<T>)
        if (small_eigh(uplo, n, to, w[i], v ? to : nullptr)) return;
      failures.note(i, lapack::stoppable::syevd(v ? 'V' : 'N', uplo, n, to, n, w[i]));
    });
  });
  failures.check(op, batch_of(A));
}

void eigen_general(const char* op, const Tensor& A, const Tensor& values, const Tensor* vectors) {
  Failures failures;
  dispatch_lapack(A.dtype(), [&]<class T>() {
    using C = std::complex<lapack::real_t<T>>;
    Matrices<const T> a(A, 2);
    Matrices<C> w(values, 1);
    std::optional<Matrices<C>> v;
    if (vectors) v.emplace(*vectors, 2);
    int64_t n = a.rows;
    for_each_matrix(a.count, 25 * cube(n) + 1000, [&](int64_t i) {
      if (n == 0) return;
      std::vector<T> copy(static_cast<size_t>(n * n));
      load_columns(a[i], a.row, a.col, n, n, copy.data(), n);
      failures.note(i, all_finite(copy.data(), n, n, n)
                           ? lapack::stoppable::geev(n, copy.data(), n, w[i], v ? (*v)[i] : nullptr)
                           : Failures::kNotFinite);
    });
  });
  failures.check(op, batch_of(A));
}

char upper_case(std::string_view uplo) { return uplo == "U" || uplo == "u" ? 'U' : 'L'; }

}  // namespace

void eigh(const Tensor& A, std::string_view uplo, const Tensor& values, const Tensor& vectors) {
  eigen_hermitian("linalg.eigh", A, upper_case(uplo), values, &vectors);
}

void eigvalsh(const Tensor& A, std::string_view uplo, const Tensor& values) {
  eigen_hermitian("linalg.eigvalsh", A, upper_case(uplo), values, nullptr);
}

void eig(const Tensor& A, const Tensor& values, const Tensor& vectors) {
  eigen_general("linalg.eig", A, values, &vectors);
}

void eigvals(const Tensor& A, const Tensor& values) { eigen_general("linalg.eigvals", A, values, nullptr); }

void ldl_factor_ex(const Tensor& A, bool hermitian, bool check_errors, const Tensor& LD, const Tensor& pivots,
                   const Tensor& info) {
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2);
    Matrices<T> ld(LD, 2);
    Matrices<int> pivot(pivots, 1), infos(info, 0);
    int64_t n = a.rows;
    for_each_matrix(a.count, cube(n) + 200, [&](int64_t i) {
      T* to = ld[i];
      for (int64_t j = 0; j < n; ++j)
        for (int64_t r = 0; r < n; ++r) to[r + j * n] = r >= j ? a[i][r * a.row + j * a.col] : T(0);
      *infos[i] = n == 0 ? 0 : lapack::stoppable::sytrf(hermitian, n, to, n, pivot[i]);
    });
  });
  if (check_errors) check_infos("linalg.ldl_factor", info, "the matrix is singular: block {} of its factor D is zero");
}

// LAPACK's pivots say which row was exchanged with row 0, 1, ...: here as the order in which the rows come.
void pivots_to_order(const Tensor& pivots, int64_t rows, const Tensor& out) {
  Matrices<const int> pivot(pivots, 1);
  Matrices<int64_t> order(out, 1);
  for (int64_t i = 0; i < order.count; ++i)
    for (int64_t j = 0; j < pivot.cols; ++j)
      TG_CHECK(pivot[i][j * pivot.col] >= 1 && pivot[i][j * pivot.col] <= rows, Runtime,
               "lu_unpack: pivots must be between 1 and LU.size(-2). It is {}: got {}", rows, pivot[i][j * pivot.col]);
  for_each_matrix(order.count, 2.0 * static_cast<double>(rows), [&](int64_t i) {
    int64_t* to = order[i];
    for (int64_t j = 0; j < rows; ++j) to[j] = j;
    for (int64_t j = 0; j < pivot.cols; ++j) std::swap(to[j], to[pivot[i][j * pivot.col] - 1]);
  });
}

}  // namespace tapegrad::cpu
