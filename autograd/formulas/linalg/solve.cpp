#include "tapegrad/autograd/formulas/linalg/solve.h"

#include "tapegrad/aten/functions.h"
#include "tapegrad/autograd/formulas/linalg/decompose.h"
#include "tapegrad/autograd/formulas/linalg/linalg.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad {
namespace {

// A^-H B: with the saved factors, or, where the tape records this for second derivatives, as a function of A.
Tensor solve_adjoint(const Tensor& A, const Tensor& LU, const Tensor& pivots, const Tensor& B) {
  if (grad_enabled()) return std::get<0>(_linalg_solve_ex(adjoint_of(A), B));
  return _lu_solve(LU, pivots, B, true);
}

// The products of all elements of the last dimension but one, without division.
Tensor products_without(const Tensor& x) {
  int64_t k = x.size(-1);
  Tensor off =
      add(mul(unsqueeze(x, -2), sub(ones({k, k}, x.dtype(), x.device()), eye(k, std::nullopt, x.dtype(), x.device()))),
          eye(k, std::nullopt, x.dtype(), x.device()));
  return prod(off, -1);
}

}  // namespace

Tensor inverse_backward(const Tensor& grad, const Tensor& inverse) {
  return neg(matmul(adjoint_times(inverse, grad), adjoint_of(inverse)));
}

// det(A) A^-1 is the adjugate. A singular matrix has one, too: of A = U S V^H it is det(U V^H) V adj(S) U^H (N. J.
// Higham, What is the adjugate of a matrix?, 2020).
Tensor det_backward(const Tensor& grad, const Tensor& det, const Tensor& A, const Tensor& LU, const Tensor& pivots) {
  if (A.numel() == 0) return zeros_like(A);
  double eps = to_real(A.dtype()) == DType::float32 ? 1.1920928955078125e-07 : 2.220446049250313e-16;
  bool singular = false;
  if (!A.is_meta() && !A.is_batched() && !LU.is_batched()) {
    Tensor pivot_sizes = raw::abs(raw::diagonal(LU, 0, -2, -1));
    Tensor bound = raw::mul(raw::amax(pivot_sizes, IntSpan{-1}), 100 * eps);
    singular = raw::any(raw::le(raw::amin(pivot_sizes, IntSpan{-1}), bound)).item<bool>();
  }
  if (singular) {
    auto [U, S, Vh] = linalg_svd(A, false);
    Tensor phase = mul(conj_of(mul(linalg_det(U), linalg_det(Vh))), grad);
    Tensor scale = mul(unsqueeze(phase, -1), products_without(S));
    return matmul(mul(U, unsqueeze(scale, -2)), Vh);
  }
  Tensor g = mul(grad, conj_of(det));
  DimVector diagonal_(A.sizes());
  diagonal_.resize(diagonal_.size() - 1);
  return solve_adjoint(A, LU, pivots, diag_embed(expand(unsqueeze(g, -1), diagonal_)));
}

// d log|det| = Re tr(A^-1 dA), d sign = i sign Im tr(A^-1 dA).
Tensor slogdet_backward(const Tensor& grad_sign, const Tensor& grad_log, const Tensor& A, const Tensor& sign,
                        const Tensor& LU, const Tensor& pivots) {
  Tensor g = grad_log.defined() ? grad_log : Tensor();
  if (A.is_complex() && grad_sign.defined()) {
    Tensor turn = mul(imag(mul(conj_of(grad_sign), sign)), Scalar(complex128_t(0, -1)));
    g = g.defined() ? add(turn, g) : turn;
  }
  if (!g.defined()) return zeros_like(A);
  DimVector diagonal_(A.sizes());
  diagonal_.resize(diagonal_.size() - 1);
  Tensor right = diag_embed(expand(unsqueeze(g, -1), diagonal_));
  return solve_adjoint(A, LU, pivots, right.dtype() == A.dtype() ? right : _to_copy(right, A.dtype()));
}

GradPair solve_backward(const Tensor& grad, const Tensor& X, const Tensor& A, IntSpan B_sizes, const Tensor& LU,
                        const Tensor& pivots, std::array<bool, 2> mask) {
  Tensor gB = solve_adjoint(A, LU, pivots, grad), gA;
  if (mask[0]) gA = sum_to(neg(times_adjoint(gB, X)), A.sizes());
  return {gA, mask[1] ? sum_to(gB, B_sizes) : Tensor()};
}

// With A = P L U: gA = -A^-H gX X^H, gL = P^T gA U^H and gU = L^H P^T gA in their triangles.
GradPair lu_solve_backward(const Tensor& grad, const Tensor& X, const Tensor& LU, const Tensor& pivots, IntSpan B_sizes,
                           bool adjoint, std::array<bool, 2> mask) {
  Tensor gB = _lu_solve(LU, pivots, grad, !adjoint), gLU;
  if (mask[0]) {
    Tensor gA = neg(adjoint ? times_adjoint(X, gB) : times_adjoint(gB, X));
    DimVector places(gA.sizes());
    places.resize(places.size() - 1);
    Tensor order = expand(_pivots_to_order(pivots, LU.size(-2)), places);
    Tensor rows = take_along_dim(gA, unsqueeze(order, -1), -2);
    Tensor U = triu(LU), L = add(tril(LU, -1), eye(LU.size(-1), std::nullopt, LU.dtype(), LU.device()));
    gLU = sum_to(add(tril(times_adjoint(rows, U), -1), triu(adjoint_times(L, rows))), LU.sizes());
  }
  return {gLU, mask[1] ? sum_to(gB, B_sizes) : Tensor()};
}

GradPair solve_triangular_backward(const Tensor& grad, const Tensor& X, const Tensor& A, IntSpan B_sizes, bool upper,
                                   bool unitriangular, std::array<bool, 2> mask) {
  Tensor gB = _solve_triangular(adjoint_of(A), grad, !upper, unitriangular), gA;
  if (mask[0]) {
    Tensor full = neg(times_adjoint(gB, X));
    gA = sum_to(upper ? triu(full, unitriangular) : tril(full, -static_cast<int64_t>(unitriangular)), A.sizes());
  }
  return {gA, mask[1] ? sum_to(gB, B_sizes) : Tensor()};
}

GradPair lstsq_backward(const Tensor& grad, const Tensor& A, const Tensor& B, std::array<bool, 2> mask) {
  Tensor inverse = _linalg_pinv(A), gA, gB;
  if (mask[0]) gA = pinv_backward(times_adjoint(grad, B), inverse, A);
  if (mask[1]) gB = adjoint_times(inverse, grad);
  return {gA, gB};
}

// Golub and Pereyra, equation 4.12, with P = A^+: the products are grouped so that the small ones come first.
Tensor pinv_backward(const Tensor& grad, const Tensor& P, const Tensor& A) {
  Tensor gh = adjoint_of(grad), Ph = adjoint_of(P);
  if (A.size(-2) <= A.size(-1)) {
    Tensor K = matmul(gh, P), KPh = matmul(K, Ph);
    return add(sub(sub(KPh, adjoint_of(matmul(P, K))), matmul(matmul(A, P), KPh)),
               matmul(matmul(Ph, P), sub(gh, matmul(K, A))));
  }
  Tensor K = matmul(P, gh), PhK = matmul(Ph, K);
  return add(sub(matmul(matmul(sub(gh, matmul(A, K)), P), Ph), adjoint_of(matmul(K, P))),
             sub(PhK, matmul(matmul(PhK, P), A)));
}

// The upper right block of exp([[A^H, G], [0, A^H]]) (Higham, Functions of matrices, 2008, theorem 3.6).
Tensor matrix_exp_backward(const Tensor& grad, const Tensor& A) {
  int64_t n = A.size(-1);
  if (n == 0) return zeros_like(A);
  Tensor Ah = adjoint_of(A);
  const Tensor top[] = {Ah, grad}, bottom[] = {zeros_like(Ah), Ah};
  const Tensor rows[] = {cat(TensorSpan(top, 2), -1), cat(TensorSpan(bottom, 2), -1)};
  return narrow(narrow(linalg_matrix_exp(cat(TensorSpan(rows, 2), -2)), -2, 0, n), -1, n, n);
}

}  // namespace tapegrad
