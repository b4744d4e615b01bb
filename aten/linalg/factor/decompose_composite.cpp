// The public forms of the factorisations, built on their kernels.
#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/kernels_decompose.h"
#include "tapegrad/aten/linalg/matrices.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::composite {
namespace {

bool recorded(const Tensor& t) { return grad_enabled() && t.requires_grad(); }

}  // namespace

Tensor linalg_cholesky(const Tensor& A, bool upper) {
  auto [L, info] = linalg_cholesky_ex(A, upper, false);
  check_infos("linalg.cholesky", info, kNotPositive);
  return L;
}

std::tuple<Tensor, Tensor> linalg_lu_factor(const Tensor& A, bool pivot) {
  auto [LU, pivots, info] = linalg_lu_factor_ex(A, pivot, false);
  check_infos("linalg.lu_factor", info, kSingular);
  return {LU, pivots};
}

std::tuple<Tensor, Tensor, Tensor> linalg_lu(const Tensor& A, bool pivot) {
  check_matrix("linalg.lu", A);
  auto [LU, pivots, info] = linalg_lu_factor_ex(A, pivot, false);
  return lu_unpack(LU, pivots);
}

std::tuple<Tensor, Tensor, Tensor> lu_unpack(const Tensor& LU, const Tensor& pivots, bool unpack_data,
                                             bool unpack_pivots) {
  TG_CHECK(LU.ndim() >= 2, Runtime, "lu_unpack: LU_data must have at least 2 dimensions: got shape {}",
           format_ints(LU.sizes()));
  int64_t m = LU.size(-2), n = LU.size(-1), k = std::min(m, n);
  TG_CHECK(
      !unpack_pivots || (pivots.ndim() == LU.ndim() - 1 && pivots.size(-1) == k && batch_of(pivots, 1) == batch_of(LU)),
      Runtime, "lu_unpack: LU_pivots of shape {} do not fit LU_data of shape {}", format_ints(pivots.sizes()),
      format_ints(LU.sizes()));
  Tensor P = empty({0}, LU.dtype(), LU.device()), L = P, U = P;
  if (unpack_data) {
    L = add(tril(narrow(LU, -1, 0, k), -1), eye(m, k, LU.dtype(), LU.device()));
    U = triu(narrow(LU, -2, 0, k));
  }
  if (unpack_pivots) {
    // Column j of P is the unit vector of the row that came to place j.
    Tensor order = _pivots_to_order(pivots, m);
    P = _to_copy(eq(unsqueeze(arange(m, DType::int64, LU.device()), -1), unsqueeze(order, -2)), LU.dtype());
  }
  return {P, L, U};
}

std::tuple<Tensor, Tensor, Tensor> linalg_svd(const Tensor& A, bool full_matrices,
                                              std::optional<std::string_view> driver) {
  TG_CHECK(!driver, Runtime, "linalg.svd: driver can be chosen on CUDA devices only: got '{}' on {}", *driver,
           A.device());
  return _linalg_svd(A, full_matrices);
}

Tensor linalg_svdvals(const Tensor& A, std::optional<std::string_view> driver) {
  TG_CHECK(!driver, Runtime, "linalg.svdvals: driver can be chosen on CUDA devices only: got '{}' on {}", *driver,
           A.device());
  return recorded(A) ? std::get<1>(_linalg_svd(A, false)) : _linalg_svdvals(A);
}

std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& input, bool some, bool compute_uv) {
  check_matrix("svd", input, "input");
  if (compute_uv) {
    auto [U, S, Vh] = _linalg_svd(input, !some);
    return {U, S, adjoint(Vh)};
  }
  // PyTorch gives zeros for the vectors that are left out.
  DimVector u(input.sizes()), v(input.sizes());
  u[u.size() - 1] = input.size(-2);
  v[v.size() - 2] = input.size(-1);
  return {zeros(u, input.dtype(), input.device()), linalg_svdvals(input), zeros(v, input.dtype(), input.device())};
}

Tensor linalg_eigvalsh(const Tensor& A, std::string_view uplo) {
  return recorded(A) ? std::get<0>(linalg_eigh(A, uplo)) : _linalg_eigvalsh(A, uplo);
}

Tensor linalg_eigvals(const Tensor& A) { return recorded(A) ? std::get<0>(linalg_eig(A)) : _linalg_eigvals(A); }

std::tuple<Tensor, Tensor> linalg_ldl_factor(const Tensor& A, bool hermitian) {
  auto [LD, pivots, info] = linalg_ldl_factor_ex(A, hermitian, false);
  check_infos("linalg.ldl_factor", info, "the matrix is singular: block {} of its factor D is zero");
  return {LD, pivots};
}

// I - tau_0 v_0 v_0^H times I - tau_1 v_1 v_1^H ...: LAPACK's, and with a gradient as that product, from the right.
Tensor householder_product(const Tensor& A, const Tensor& tau) {
  if (!recorded(A) && !recorded(tau)) return _householder_product(A, tau);
  householder_product_shape(A, tau);
  int64_t m = A.size(-2), n = A.size(-1), k = tau.size(-1);
  Tensor V = add(tril(narrow(A, -1, 0, k), -1), eye(m, k, A.dtype(), A.device()));
  Tensor Q = copy_(clone(A), expand(eye(m, n, A.dtype(), A.device()), A.sizes()));
  for (int64_t i = k - 1; i >= 0; --i) {
    Tensor v = narrow(V, -1, i, 1), t = unsqueeze(narrow(tau, -1, i, 1), -1);
    Q = sub(Q, matmul(v, mul(t, matmul(adjoint(v), Q))));
  }
  return Q;
}

Tensor ormqr(const Tensor& input, const Tensor& tau, const Tensor& other, bool left, bool transposed) {
  check_matrix("ormqr", input, "input");
  check_matrix("ormqr", other, "other");
  check_same_dtype("ormqr", input, tau);
  check_same_dtype("ormqr", input, other);
  int64_t m = other.size(left ? -2 : -1);
  TG_CHECK(input.size(-2) == m && tau.ndim() == input.ndim() - 1 && tau.size(-1) == std::min(m, input.size(-1)),
           Runtime, "ormqr: reflectors of shape {} and tau of shape {} do not fit a tensor of shape {}",
           format_ints(input.sizes()), format_ints(tau.sizes()), format_ints(other.sizes()));
  TG_CHECK(batch_of(tau, 1) == batch_of(input) && batch_of(input) == batch_of(other), Runtime,
           "ormqr: batches differ: shapes {}, {} and {}", format_ints(input.sizes()), format_ints(tau.sizes()),
           format_ints(other.sizes()));
  // Q = I - V T V^H with T = (I + diag(tau) U)^-1 diag(tau), where U is V^H V above its diagonal (Schreiber and Van
  // Loan 1989, "A storage-efficient WY representation for products of Householder transformations"): Q itself may not
  // fit into memory.
  const int64_t k = tau.size(-1);
  const Tensor V = add(tril(narrow(input, -1, 0, k), -1), eye(m, k, input.dtype(), input.device()));
  const Tensor VH = adjoint(V), D = diag_embed(tau);
  Tensor T = linalg_solve_triangular(matmul(D, triu(matmul(VH, V), 1)), D, true, true, true);
  if (transposed) T = adjoint(T);
  return left ? sub(other, matmul(V, matmul(T, matmul(VH, other))))
              : sub(other, matmul(matmul(matmul(other, V), T), VH));
}

}  // namespace tapegrad::composite
