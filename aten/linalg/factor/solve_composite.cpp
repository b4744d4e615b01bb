// The public forms of inverses, determinants and solvers, built on their kernels: vectors, the right-hand side, errors.
#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/kernels_solve.h"
#include "tapegrad/aten/linalg/matrices.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/tensor/product.h"

namespace tapegrad::composite {
namespace {

Tensor mT(const Tensor& t) { return transpose(t, -2, -1); }

Tensor expand_batch(const Tensor& t, IntSpan batch) {
  DimVector sizes(batch);
  sizes.push_back(t.size(-2));
  sizes.push_back(t.size(-1));
  return t.sizes() == IntSpan(sizes) ? t : expand(t, sizes);
}

double epsilon(DType t) { return to_real(t) == DType::float32 ? 1.1920928955078125e-07 : 2.220446049250313e-16; }

}  // namespace

Tensor linalg_inv(const Tensor& A) {
  auto [inverse, info] = linalg_inv_ex(A, false);
  check_infos("linalg.inv", info, kNotInvertible);
  return inverse;
}

std::tuple<Tensor, Tensor> linalg_slogdet(const Tensor& A) {
  auto [sign, logabsdet, LU, pivots] = _linalg_slogdet(A);
  return {sign, logabsdet};
}

Tensor logdet(const Tensor& input) {
  auto [sign, logabsdet, LU, pivots] = _linalg_slogdet(input);
  if (input.is_complex()) return add(log(sign), logabsdet);
  return where(eq(sign, -1), std::numeric_limits<double>::quiet_NaN(), logabsdet);
}

std::tuple<Tensor, Tensor> linalg_solve_ex(const Tensor& A, const Tensor& B, bool left, bool check_errors) {
  constexpr const char* op = "linalg.solve";
  check_square(op, A);
  bool vector = is_vector_batch(A, B);
  TG_CHECK(left || !vector, Runtime, "{}: with left=False B must be matrices: got shape {}", op,
           format_ints(B.sizes()));
  Tensor b = vector ? unsqueeze(B, -1) : B;
  if (!left)
    TG_CHECK(b.ndim() >= 2, Runtime, "{}: B must have at least 2 dimensions: got shape {}", op, format_ints(B.sizes()));
  auto [X, LU, pivots, info] = _linalg_solve_ex(left ? A : mT(A), left ? b : mT(b));
  if (check_errors) check_infos(op, info, kSingular);
  return {vector ? squeeze(X, IntSpan{-1}) : left ? X : mT(X), info};
}

Tensor linalg_solve(const Tensor& A, const Tensor& B, bool left) {
  return std::get<0>(tapegrad::linalg_solve_ex(A, B, left, true));
}

Tensor linalg_lu_solve(const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left, bool adjoint_) {
  check_matrix("linalg.lu_solve", B, "B");
  if (left) return _lu_solve(LU, pivots, B, adjoint_);
  return adjoint(_lu_solve(LU, pivots, adjoint(B), !adjoint_));
}

Tensor linalg_solve_triangular(const Tensor& A, const Tensor& B, bool upper, bool left, bool unitriangular) {
  check_square("linalg.solve_triangular", A);
  check_matrix("linalg.solve_triangular", B, "B");
  if (left) return _solve_triangular(A, B, upper, unitriangular);
  return mT(_solve_triangular(mT(A), mT(B), !upper, unitriangular));
}

std::tuple<Tensor, Tensor> triangular_solve(const Tensor& input, const Tensor& A, bool upper, bool transposed,
                                            bool unitriangular) {
  check_square("triangular_solve", A);
  check_matrix("triangular_solve", input, "input");
  Tensor X = transposed ? _solve_triangular(mT(A), input, !upper, unitriangular)
                        : _solve_triangular(A, input, upper, unitriangular);
  return {X, clone(expand_batch(A, batch_of(X)))};
}

Tensor cholesky_solve(const Tensor& input, const Tensor& factor, bool upper) {
  check_square("cholesky_solve", factor, "L");
  check_matrix("cholesky_solve", input, "input");
  Tensor first = _solve_triangular(upper ? adjoint(factor) : factor, input, false, false);
  return _solve_triangular(upper ? factor : adjoint(factor), first, true, false);
}

Tensor cholesky_inverse(const Tensor& input, bool upper) {
  check_square("cholesky_inverse", input, "input");
  if (input.size(-1) > 0) {
    const Tensor zero = eq(diagonal(input.detach(), 0, -2, -1), 0);
    const Tensor first = add(argmax(to(zero, DType::uint8), -1, false), 1);  // counted from 1, as LAPACK does
    check_infos("cholesky_inverse", to(where(any(zero, IntSpan{-1}, false), first, 0), DType::int32),
                "The diagonal element {} is zero, the inversion could not be completed because the input matrix is "
                "singular");
  }
  return tapegrad::cholesky_solve(eye(input.size(-1), std::nullopt, input.dtype(), input.device()), input, upper);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> linalg_lstsq(const Tensor& A, const Tensor& B, std::optional<double> rcond,
                                                        std::optional<std::string_view> driver) {
  constexpr const char* op = "linalg.lstsq";
  check_matrix(op, A, "input");
  TG_CHECK(B.ndim() >= 1, Runtime, "{}: B must have at least 1 dimension: got shape {}", op, format_ints(B.sizes()));
  bool vector = is_vector_batch(A, B);
  Tensor b = vector ? unsqueeze(B, -1) : B;
  check_matrix(op, b, "B");
  DimVector batch = broadcast_sizes(batch_of(A), batch_of(b), op);
  Tensor a = expand_batch(A, batch);
  b = expand_batch(b, batch);
  int64_t m = a.size(-2), n = a.size(-1);
  double bound = rcond.value_or(epsilon(A.dtype()) * static_cast<double>(std::max(m, n)));
  std::string_view chosen = driver.value_or("gelsy");
  auto [X, rank, values] = _lstsq(a, b, bound, chosen);
  // Empty unless they can be given; of the solution, so that they carry gradients as it does.
  Tensor residuals = narrow(reshape(X.is_complex() ? real(X) : X, {X.numel()}), 0, 0, 0);
  if (m > n && chosen != "gelsy") {
    bool full = chosen == "gels" || rank.is_meta() || raw::all(raw::eq(rank, n)).item<bool>();
    if (full) residuals = sum(square(abs(sub(matmul(a, X), b))), IntSpan{-2});
  }
  return {vector ? squeeze(X, IntSpan{-1}) : X, residuals, rank, values};
}

namespace {

// max(atol, rtol * largest) per matrix; `largest` is (*, 1), so the result is, too.
Tensor threshold_of(const Tensor& A, const Tensor& atol, const Tensor& rtol, const Tensor& values) {
  double size = static_cast<double>(std::max(A.size(-2), A.size(-1)));
  Tensor largest = values.size(-1) == 0 ? zeros({}, values.dtype(), values.device()) : amax(values, IntSpan{-1}, true);
  auto column = [&](const Tensor& t) { return t.ndim() == 0 ? t : unsqueeze(t, -1); };
  Tensor relative = rtol.defined() ? column(rtol) : Tensor();
  if (!relative.defined()) {
    Tensor fallback = scalar_tensor(epsilon(A.dtype()) * size, values.dtype(), values.device());
    relative = atol.defined() ? where(gt(column(atol), 0), zeros_like(fallback), fallback) : fallback;
  }
  Tensor bound = mul(largest, relative);
  return atol.defined() ? maximum(bound, column(atol)) : bound;
}

void check_tolerance(const char* op, const Tensor& t, const char* name) {
  TG_CHECK(!t.defined() || !t.is_complex(), Runtime, "{}: {} must be real: got {}", op, name, t.dtype());
}

}  // namespace

Tensor linalg_pinv_tol(const Tensor& A, const Operand& atol, const Operand& rtol, bool hermitian) {
  check_tolerance("linalg.pinv", atol.tensor(), "atol");
  check_tolerance("linalg.pinv", rtol.tensor(), "rtol");
  return _linalg_pinv(A, atol.tensor(), rtol.tensor(), hermitian);
}

Tensor linalg_pinv_rcond(const Tensor& A, const Operand& rcond, bool hermitian) {
  check_tolerance("linalg.pinv", rcond.tensor(), "rcond");
  return _linalg_pinv(A, wrapped_number(Scalar(0.0)), rcond.tensor(), hermitian);
}

Tensor linalg_matrix_rank(const Tensor& A, const Operand& atol, const Operand& rtol, bool hermitian) {
  constexpr const char* op = "linalg.matrix_rank";
  check_tolerance(op, atol.tensor(), "atol");
  check_tolerance(op, rtol.tensor(), "rtol");
  if (hermitian)
    check_square(op, A);
  else
    check_matrix(op, A);
  Tensor a = A.detach(), values = hermitian ? abs(_linalg_eigvalsh(a)) : _linalg_svdvals(a);
  return sum(gt(values, threshold_of(A, atol.tensor(), rtol.tensor(), values)), IntSpan{-1});
}

Tensor linalg_matrix_power(const Tensor& A, int64_t n) {
  constexpr const char* op = "linalg.matrix_power";
  TG_CHECK(A.ndim() >= 2 && A.size(-1) == A.size(-2), Runtime, "{}: A must be batches of square matrices: got shape {}",
           op, format_ints(A.sizes()));
  TG_CHECK(n > std::numeric_limits<int64_t>::min(), Runtime, "{}: the power {} is too large", op, n);
  if (n == 0) return copy_(clone(A), expand(eye(A.size(-1), std::nullopt, A.dtype(), A.device()), A.sizes()));
  Tensor power = n < 0 ? tapegrad::linalg_inv(A) : A, result;
  for (uint64_t rest = static_cast<uint64_t>(n < 0 ? -n : n);; rest >>= 1) {
    if (rest & 1) result = result.defined() ? matmul(result, power) : power;
    if (rest <= 1) break;
    power = matmul(power, power);
  }
  return n == 1 ? clone(result) : result;
}

Tensor linalg_tensorinv(const Tensor& A, int64_t ind) {
  TG_CHECK(ind > 0 && ind <= A.ndim(), Runtime,
           "linalg.tensorinv: Expected a strictly positive integer for ind, at most {}: got {}", A.ndim(), ind);
  IntSpan first(A.sizes().data(), static_cast<size_t>(ind)),
      rest(A.sizes().data() + ind, static_cast<size_t>(A.ndim() - ind));
  TG_CHECK(product(first) == product(rest), Runtime,
           "linalg.tensorinv: Expected self to satisfy the requirement that its first {} dimensions have as many "
           "elements as the others: got shape {}, {} and {}",
           ind, format_ints(A.sizes()), product(first), product(rest));
  DimVector sizes(rest);
  for (int64_t s : first) sizes.push_back(s);
  return reshape(tapegrad::linalg_inv(reshape(A, {product(first), product(rest)})), sizes);
}

Tensor linalg_tensorsolve(const Tensor& A, const Tensor& B, OptionalInts dims) {
  constexpr const char* op = "linalg.tensorsolve";
  Tensor a = A;
  if (dims) {
    DimVector targets;
    for (size_t i = 0; i < dims->size(); ++i)
      targets.push_back(A.ndim() - static_cast<int64_t>(dims->size()) + static_cast<int64_t>(i));
    a = movedim(A, *dims, targets);
  }
  TG_CHECK(a.ndim() >= B.ndim() && product(IntSpan(a.sizes().data(), static_cast<size_t>(B.ndim()))) == B.numel(),
           Runtime,
           "{}: Expected self to satisfy the requirement that its first dimensions have as many elements as B: got "
           "shapes {} and {}",
           op, format_ints(a.sizes()), format_ints(B.sizes()));
  IntSpan rest(a.sizes().data() + B.ndim(), static_cast<size_t>(a.ndim() - B.ndim()));
  TG_CHECK(product(rest) == B.numel(), Runtime, "{}: A of shape {} is not square with respect to B of shape {}", op,
           format_ints(a.sizes()), format_ints(B.sizes()));
  return reshape(tapegrad::linalg_solve(reshape(a, {B.numel(), B.numel()}), reshape(B, {B.numel()})), rest);
}

}  // namespace tapegrad::composite

namespace tapegrad::cpu {

void pinv(const Tensor& A, const Tensor& atol, const Tensor& rtol, bool hermitian, const Tensor& out) {
  NoGradGuard guard;
  if (A.numel() == 0) {
    raw::zero_(out);
    return;
  }
  if (hermitian) {
    auto [L, Q] = raw::linalg_eigh(A);
    Tensor size = raw::abs(L), keep = raw::gt(size, composite::threshold_of(A, atol, rtol, size));
    Tensor inverse = raw::where(keep, raw::reciprocal(L), raw::zeros_like(L));
    raw::copy_(out, raw::matmul(raw::mul(Q, raw::unsqueeze(inverse, -2)), adjoint(Q)));
    return;
  }
  auto [U, S, Vh] = raw::_linalg_svd(A, false);
  Tensor keep = raw::gt(S, composite::threshold_of(A, atol, rtol, S));
  Tensor inverse = raw::where(keep, raw::reciprocal(S), raw::zeros_like(S));
  raw::copy_(out, raw::matmul(raw::mul(adjoint(Vh), raw::unsqueeze(inverse, -2)), adjoint(U)));
}

}  // namespace tapegrad::cpu
