#include "tapegrad/autograd/formulas/linalg/decompose.h"

#include "tapegrad/aten/functions.h"
#include "tapegrad/autograd/formulas/linalg/linalg.h"

namespace tapegrad {
namespace {

Tensor half(const Tensor& t) { return mul(t, 0.5); }
Tensor diag_of(const Tensor& t) { return diagonal(t, 0, -2, -1); }

// 1 / (values[j] - values[i]), and 1 on the diagonal, where the numerator is zero.
Tensor differences(const Tensor& values) {
  Tensor e = sub(unsqueeze(values, -2), unsqueeze(values, -1));
  return add(e, eye(values.size(-1), std::nullopt, values.dtype(), values.device()));
}

// Vectors are unique up to a phase; a loss that depends on the phase has no gradient.
void check_phase(const char* op, const Tensor& diagonal_) {
  if (!diagonal_.is_complex() || diagonal_.is_meta() || diagonal_.is_batched() || diagonal_.numel() == 0) return;
  Tensor d = diagonal_.detach();
  double size = raw::amax(raw::abs(d)).item<double>(), phase = raw::amax(raw::abs(raw::imag(d))).item<double>();
  TG_CHECK(phase <= 1e-2 * std::max(size, 1e-2) || phase <= 1e-2, Runtime,
           "{}: the gradient is ill-defined: the loss depends on the phase of the vectors, which is arbitrary: "
           "imaginary part {}",
           op, phase);
}

}  // namespace

Tensor adjoint_times(const Tensor& a, const Tensor& b) { return matmul(adjoint_of(a), b); }
Tensor times_adjoint(const Tensor& a, const Tensor& b) { return matmul(a, adjoint_of(b)); }

Tensor no_derivative(const char* op) { TG_THROW(NotImplemented, "{}: there is no derivative", op); }

// A = L L^H: dA's gradient is L^-H Phi(L^H G) L^-1, symmetrised (Murray, equation 10).
Tensor cholesky_backward(const Tensor& grad, const Tensor& factor, bool upper) {
  Tensor L = upper ? adjoint_of(factor) : factor, G = upper ? adjoint_of(grad) : grad;
  Tensor phi = adjoint_times(L, G);
  Tensor s = half(add(tril(phi), adjoint_of(tril(phi, -1))));
  Tensor left = linalg_solve_triangular(adjoint_of(L), s, true);
  return linalg_solve_triangular(L, left, false, false);
}

// The LU factors as one tensor: P^T dA = dL U + L dU, whose solution for m = n is Walter and Lehmann's; wide and tall
// matrices are a square one with columns or rows that depend on it linearly.
Tensor lu_factor_backward(const Tensor& grad, const Tensor& LU, const Tensor& pivots) {
  int64_t m = LU.size(-2), n = LU.size(-1), k = std::min(m, n);
  Tensor square = narrow(narrow(LU, -2, 0, k), -1, 0, k), g = narrow(narrow(grad, -2, 0, k), -1, 0, k);
  Tensor U = triu(square), L = add(tril(square, -1), eye(k, std::nullopt, LU.dtype(), LU.device()));
  Tensor inner_l = adjoint_times(L, tril(g, -1)), inner_u = matmul(triu(g), adjoint_of(U));
  Tensor rest;  // gradient of the rows or columns beyond the square, with respect to P^T A
  if (m > n) {  // L2 = A2 U^-1
    Tensor L2 = narrow(LU, -2, k, m - k), g2 = narrow(grad, -2, k, m - k);
    rest = linalg_solve_triangular(adjoint_of(U), g2, false, false);
    inner_u = sub(inner_u, adjoint_times(L2, g2));
  } else if (m < n) {  // U2 = L^-1 A2
    Tensor U2 = narrow(LU, -1, k, n - k), g2 = narrow(grad, -1, k, n - k);
    rest = linalg_solve_triangular(adjoint_of(L), g2, true, true, true);
    inner_l = sub(inner_l, times_adjoint(g2, U2));
  }
  Tensor phi = add(tril(inner_l, -1), triu(inner_u));
  Tensor gA = linalg_solve_triangular(adjoint_of(L), phi, true, true, true);
  gA = linalg_solve_triangular(adjoint_of(U), gA, false, false);
  if (rest.defined()) {
    const Tensor parts[] = {gA, rest};
    gA = cat(TensorSpan(parts, 2), m > n ? -2 : -1);
  }
  // Rows back into A's order.
  Tensor order = argsort(_pivots_to_order(pivots, m), -1);
  return take_along_dim(gA, unsqueeze(order, -1), -2);
}

namespace {

// m >= n, Q (m x n) (Walter and Lehmann, section 3.2; R's diagonal is real).
Tensor qr_backward_tall(const Tensor& gQ, const Tensor& gR, const Tensor& Q, const Tensor& R) {
  Tensor M;
  if (gR.defined()) M = matmul(gR, adjoint_of(R));
  if (gQ.defined()) {
    Tensor q = adjoint_times(Q, gQ);
    M = M.defined() ? sub(M, q) : neg(q);
  }
  // The Hermitian matrix with M's upper triangle and the real part of its diagonal.
  M = triu(M);
  Tensor d = diag_of(M);
  Tensor real_d = M.is_complex() ? add(d, conj_of(d)) : mul(d, 2);
  Tensor S = sub(add(M, adjoint_of(M)), half(diag_embed(real_d)));
  Tensor gA = matmul(Q, S);
  if (gQ.defined()) gA = add(gA, gQ);
  return linalg_solve_triangular(adjoint_of(R), gA, false, false);
}

}  // namespace

Tensor qr_backward(const Tensor& gQ, const Tensor& gR, const Tensor& Q, const Tensor& R, std::string_view mode) {
  TG_CHECK(mode != "r", Runtime,
           "linalg.qr: The derivative of linalg.qr depends on Q, which mode 'r' leaves out\nhint: mode='reduced' "
           "computes it");
  int64_t m = Q.size(-2), n = R.size(-1);
  TG_CHECK(mode == "reduced" || m <= n, Runtime,
           "linalg.qr: mode 'complete' has no derivative for more rows than columns: {} by {}", m, n);
  if (m >= n) return qr_backward_tall(gQ, gR, Q, R);
  // A = [A1 A2], A1 = Q R1, R2 = Q^H A2.
  Tensor R1 = narrow(R, -1, 0, m), g = gQ, g1, g2;
  if (gR.defined()) {
    g1 = narrow(gR, -1, 0, m);
    g2 = narrow(gR, -1, m, n - m);
    Tensor A2 = matmul(Q, narrow(R, -1, m, n - m)), extra = times_adjoint(A2, g2);
    g = g.defined() ? add(g, extra) : extra;
  }
  Tensor first = qr_backward_tall(g, g1, Q, R1);
  DimVector sizes(first.sizes());
  sizes[sizes.size() - 1] = n - m;
  const Tensor parts[] = {first, g2.defined() ? matmul(Q, g2) : zeros(sizes, first.dtype(), first.device())};
  return cat(TensorSpan(parts, 2), -1);
}

// Townsend (2016), equations 31 to 36, extended to complex matrices; singular values must differ where vectors count.
Tensor svd_backward(const Tensor& gU_all, const Tensor& gS, const Tensor& gVh_all, const Tensor& U_all, const Tensor& S,
                    const Tensor& Vh_all) {
  // In full matrices the columns beyond the rank are arbitrary and do not contribute.
  int64_t k = S.size(-1);
  auto columns = [&](const Tensor& t) { return t.defined() && t.size(-1) > k ? narrow(t, -1, 0, k) : t; };
  auto rows = [&](const Tensor& t) { return t.defined() && t.size(-2) > k ? narrow(t, -2, 0, k) : t; };
  Tensor U = columns(U_all), Vh = rows(Vh_all), gU = columns(gU_all), gVh = rows(gVh_all);
  int64_t m = U.size(-2), n = Vh.size(-1);
  Tensor s_row = unsqueeze(S, -2), s_column = unsqueeze(S, -1);
  if (!gU.defined() && !gVh.defined()) {
    Tensor g = unsqueeze(gS, -1);
    return m >= n ? matmul(U, mul(g, Vh)) : matmul(mul(U, unsqueeze(gS, -2)), Vh);
  }
  auto skew = [](const Tensor& x) { return sub(x, adjoint_of(x)); };
  Tensor u, v;
  if (gU.defined()) u = skew(adjoint_times(U, gU));
  if (gVh.defined()) v = skew(times_adjoint(Vh, gVh));
  if (U.is_complex()) check_phase("linalg.svd", diag_of(!v.defined() ? u : !u.defined() ? v : add(u, v)));
  Tensor E = differences(square(S));
  Tensor M;
  if (u.defined()) M = mul(u, s_row);
  if (v.defined()) M = M.defined() ? add(M, mul(s_column, v)) : mul(s_column, v);
  M = div(M, E);
  if (gS.defined()) M = add(M, diag_embed(gS));
  // The phase that U and V share.
  if (U.is_complex() && u.defined() && v.defined()) {
    M = sub(M, diag_embed(diag_of(M)));
    M = add(M, diag_embed(div(diag_of(u), mul(S, 2))));
    if (gS.defined()) M = add(M, diag_embed(gS));
  }
  if (m > n && gU.defined()) {
    Tensor g = div(gU, s_row);
    Tensor left = add(matmul(U, M), sub(g, matmul(U, adjoint_times(U, g))));
    return matmul(left, Vh);
  }
  if (m < n && gVh.defined()) {
    Tensor g = div(gVh, s_column);
    Tensor right = add(matmul(M, Vh), sub(g, matmul(times_adjoint(g, Vh), Vh)));
    return matmul(U, right);
  }
  return m >= n ? matmul(U, matmul(M, Vh)) : matmul(matmul(U, M), Vh);
}

// Giles (2008), section 3.1, for Hermitian matrices.
Tensor eigh_backward(const Tensor& gL, const Tensor& gV, const Tensor& L, const Tensor& V) {
  if (!gV.defined()) return times_adjoint(mul(V, unsqueeze(gL, -2)), V);
  Tensor inner = adjoint_times(V, gV);
  check_phase("linalg.eigh", diag_of(inner));
  inner = sub(inner, diag_embed(diag_of(inner)));
  inner = div(inner, differences(L));
  if (gL.defined()) inner = add(inner, diag_embed(gL));
  return matmul(V, times_adjoint(inner, V));
}

// The same for general matrices, whose vectors have length 1 (Boeddeker et al., On the computation of complex-valued
// gradients with application to statistically optimum beamforming, 2017, section 4.4).
Tensor eig_backward(const Tensor& gL, const Tensor& gV, const Tensor& L, const Tensor& V, DType dtype) {
  Tensor inner;
  if (gV.defined()) {
    Tensor g = adjoint_times(V, gV), d = diag_of(g);
    check_phase("linalg.eig", d);
    Tensor real_part = half(add(d, conj_of(d)));
    inner = sub(g, mul(adjoint_times(V, V), unsqueeze(real_part, -2)));
    inner = sub(inner, diag_embed(diag_of(inner)));
    inner = div(inner, conj_of(differences(L)));
    if (gL.defined()) inner = add(inner, diag_embed(gL));
  } else {
    inner = diag_embed(gL);
  }
  Tensor gA = linalg_solve(adjoint_of(V), times_adjoint(inner, V));
  return is_complex(dtype) ? gA : real(gA);
}

}  // namespace tapegrad
