// Batching rules of linear solvers. A matrix shared by all samples is factored once: the samples' right-hand sides
// become further columns.
#include "tapegrad/aten/batch/part.h"
#include "tapegrad/aten/batch/rules.h"
#include "tapegrad/aten/functions_solve.h"
#include "tapegrad/aten/functions_view.h"

namespace tapegrad::batch {
namespace {

// (n, *batch, k, m) as (*batch, k, n m), and back.
Tensor as_columns(const Part& b, int64_t n) {
  const Tensor moved = tapegrad::movedim(b.t, IntSpan{0}, IntSpan{-2});
  DimVector sizes(moved.sizes().first(static_cast<size_t>(moved.ndim()) - 2));
  sizes.push_back(n * moved.size(-1));
  return tapegrad::reshape(moved, sizes);
}

Tensor from_columns(const Tensor& x, int64_t n) {
  DimVector sizes(x.sizes().first(static_cast<size_t>(x.ndim()) - 1));
  sizes.push_back(n);
  sizes.push_back(x.size(-1) / n);
  return tapegrad::movedim(tapegrad::reshape(x, sizes), IntSpan{-2}, IntSpan{0});
}

// Where only B has samples, solve(B as columns); else solve(B with samples in front of its batch).
template <class F>
Tensor solved(const char* op, const Part& a, const Part& b, int64_t n, F&& solve) {
  TG_CHECK(a.ndim() >= 2 && b.ndim() >= 2, Runtime, "{}: expected matrices: got shapes {} and {}", op,
           format_ints(a.sizes()), format_ints(b.sizes()));
  if (!a.has_dim) return b.has_dim ? from_columns(solve(a.t, as_columns(b, n)), n) : solve(a.t, b.t);
  const int64_t ndim = 1 + std::max(a.ndim(), b.ndim());
  return solve(a.behind(n, ndim), b.has_dim ? b.behind(n, ndim) : b.t);
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> linalg_solve_ex(const Tensor& A, const Tensor& B) {
  const auto [here, n, a, b] = samples_of("linalg.solve", A, B);
  Tensor LU, pivots, info;
  const Tensor result = at_level(here, a.has_dim || b.has_dim, [&] {
    return solved("linalg.solve", a, b, n, [&](const Tensor& matrix, const Tensor& columns) {
      Tensor x;
      std::tie(x, LU, pivots, info) = tapegrad::_linalg_solve_ex(matrix, columns);
      if (a.has_dim) {
        // A factorisation has as many dimensions as the matrix it is of.
        const auto ndim = static_cast<size_t>(a.t.ndim());
        LU = tapegrad::reshape(LU, a.t.sizes());
        pivots = tapegrad::reshape(pivots, a.t.sizes().first(ndim - 1));
        info = tapegrad::reshape(info, a.t.sizes().first(ndim - 2));
      }
      return x;
    });
  });
  return {result, wrap(LU, here, a.has_dim), wrap(pivots, here, a.has_dim), wrap(info, here, a.has_dim)};
}

namespace {

template <class F>
Tensor solved_by_factors(const char* op, const Tensor& LU, const Tensor& pivots, const Tensor& B, F&& solve) {
  const int here = highest_level({&LU, &pivots, &B});
  const int64_t n = level(here).size;
  check_samples(op, n);
  Part a = part(LU, here), p = part(pivots, here);
  const Part b = part(B, here);
  return at_level(here, any_has_dim({&a, &p, &b}), [&] {
    if (p.has_dim) a = {a.led(n), true};
    return solved(op, a, b, n, [&](const Tensor& factors, const Tensor& columns) {
      return solve(factors, a.has_dim ? p.behind(n, factors.ndim() - 1) : p.t, columns);
    });
  });
}

}  // namespace

Tensor lu_solve(const Tensor& LU, const Tensor& pivots, const Tensor& B, bool adjoint) {
  return solved_by_factors("linalg.lu_solve", LU, pivots, B,
                           [&](const Tensor& factors, const Tensor& places, const Tensor& columns) {
                             return tapegrad::_lu_solve(factors, places, columns, adjoint);
                           });
}

Tensor ldl_solve(const Tensor& LD, const Tensor& pivots, const Tensor& B, bool hermitian) {
  return solved_by_factors("linalg.ldl_solve", LD, pivots, B,
                           [&](const Tensor& factors, const Tensor& places, const Tensor& columns) {
                             return tapegrad::linalg_ldl_solve(factors, places, columns, hermitian);
                           });
}

Tensor solve_triangular(const Tensor& A, const Tensor& B, bool upper, bool unitriangular) {
  const auto [here, n, a, b] = samples_of("linalg.solve_triangular", A, B);
  return at_level(here, a.has_dim || b.has_dim, [&] {
    return solved("linalg.solve_triangular", a, b, n, [&](const Tensor& matrix, const Tensor& columns) {
      return tapegrad::_solve_triangular(matrix, columns, upper, unitriangular);
    });
  });
}

std::tuple<Tensor, Tensor, Tensor> lstsq(const Tensor& A, const Tensor& B, double rcond, std::string_view driver) {
  const auto [here, n, a, b] = samples_of("linalg.lstsq", A, B);
  Tensor rank, values;
  const bool has_dim = a.has_dim || b.has_dim;
  const Tensor solution = at_level(here, has_dim, [&] {
    Tensor x;
    std::tie(x, rank, values) = tapegrad::_lstsq(has_dim ? a.led(n) : a.t, has_dim ? b.led(n) : b.t, rcond, driver);
    return x;
  });
  // What the driver does not give is empty, the same for all.
  const auto given = [&](const Tensor& t, bool is) { return wrap(t, here, has_dim && is); };
  return {solution, given(rank, driver != "gels"), given(values, driver == "gelsd" || driver == "gelss")};
}

Tensor pinv(const Tensor& A, const Tensor& atol, const Tensor& rtol, bool hermitian) {
  const auto [here, n, a, absolute, relative] = parts_of(A, atol, rtol);
  const bool has_dim = any_has_dim({&a, &absolute, &relative});
  return at_level(here, has_dim, [&] {
    // Tolerances are one for each matrix of a batch.
    const auto tolerance = [&](const Part& p) { return p.has_dim ? p.behind(n, A.ndim() - 1) : p.t; };
    return tapegrad::_linalg_pinv(has_dim ? a.led(n) : a.t, tolerance(absolute), tolerance(relative), hermitian);
  });
}

}  // namespace tapegrad::batch
