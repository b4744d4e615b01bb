// Shapes and checks of the factorisations.
#include "tapegrad/aten/kernels_decompose.h"
#include "tapegrad/aten/linalg/matrices.h"

namespace tapegrad {
namespace {

int64_t smaller(const Tensor& A) { return std::min(A.size(-1), A.size(-2)); }

// LAPACK counts its workspace, of about `factor` n^2 elements, in 32-bit integers and does not notice an overflow.
void check_workspace(const char* op, const Tensor& A, int64_t factor) {
  int64_t n = smaller(A);
  TG_CHECK(factor * n * n + 8 * n < int64_t{1} << 31, Runtime, "{}: A is too large for LAPACK's workspace: shape {}",
           op, format_ints(A.sizes()));
}

void check_uplo(const char* op, std::string_view uplo) {
  TG_CHECK(uplo.size() == 1 && std::string_view("LUlu").find(uplo[0]) != std::string_view::npos, Runtime,
           "{}: UPLO must be 'L' or 'U': got '{}'", op, uplo);
}

}  // namespace

std::array<TensorSpec, 2> cholesky_ex_shape(const Tensor& A, bool, bool) {
  check_square("linalg.cholesky", A);
  return {columns_spec(batch_of(A), A.size(-1), A.size(-1), A.dtype(), A.device()), batch_spec(A, {}, DType::int32)};
}

std::array<TensorSpec, 3> lu_factor_ex_shape(const Tensor& A, bool pivot, bool) {
  check_matrix("linalg.lu_factor", A);
  TG_CHECK(pivot, Runtime, "linalg.lu_factor: LU without pivoting is not implemented on the CPU: got pivot=False");
  return {columns_spec(batch_of(A), A.size(-2), A.size(-1), A.dtype(), A.device()),
          batch_spec(A, {smaller(A)}, DType::int32), batch_spec(A, {}, DType::int32)};
}

std::array<TensorSpec, 2> qr_shape(const Tensor& A, std::string_view mode) {
  check_matrix("linalg.qr", A, "The input tensor A");
  TG_CHECK(mode == "reduced" || mode == "complete" || mode == "r", Runtime,
           "linalg.qr: qr received unrecognized mode '{}' but expected one of 'reduced' (default), 'r', or 'complete'",
           mode);
  int64_t m = A.size(-2), n = A.size(-1), k = mode == "complete" ? m : std::min(m, n);
  TensorSpec q = columns_spec(batch_of(A), m, k, A.dtype(), A.device());
  if (mode == "r") q = {{0}, A.dtype(), A.device(), {}};
  return {std::move(q), columns_spec(batch_of(A), k, n, A.dtype(), A.device())};
}

std::array<TensorSpec, 2> geqrf_shape(const Tensor& input) {
  check_matrix("geqrf", input, "input");
  return {columns_spec(batch_of(input), input.size(-2), input.size(-1), input.dtype(), input.device()),
          batch_spec(input, {smaller(input)}, input.dtype())};
}

TensorSpec householder_product_shape(const Tensor& A, const Tensor& tau) {
  check_matrix("linalg.householder_product", A, "input");
  check_same_dtype("linalg.householder_product", A, tau);
  TG_CHECK(A.size(-2) >= A.size(-1), Runtime,
           "linalg.householder_product: A must have at least as many rows as columns: got shape {}",
           format_ints(A.sizes()));
  TG_CHECK(tau.ndim() == A.ndim() - 1 && tau.size(-1) <= A.size(-1) && batch_of(tau, 1) == batch_of(A), Runtime,
           "linalg.householder_product: tau of shape {} does not fit A of shape {}", format_ints(tau.sizes()),
           format_ints(A.sizes()));
  return columns_spec(batch_of(A), A.size(-2), A.size(-1), A.dtype(), A.device());
}

std::array<TensorSpec, 3> svd_shape(const Tensor& A, bool full_matrices) {
  check_matrix("linalg.svd", A);
  check_workspace("linalg.svd", A, 5);
  int64_t m = A.size(-2), n = A.size(-1), k = smaller(A);
  return {columns_spec(batch_of(A), m, full_matrices ? m : k, A.dtype(), A.device()),
          batch_spec(A, {k}, to_real(A.dtype())),
          columns_spec(batch_of(A), full_matrices ? n : k, n, A.dtype(), A.device())};
}

TensorSpec svdvals_shape(const Tensor& A) {
  check_matrix("linalg.svdvals", A);
  return batch_spec(A, {smaller(A)}, to_real(A.dtype()));
}

std::array<TensorSpec, 2> eigh_shape(const Tensor& A, std::string_view uplo) {
  check_square("linalg.eigh", A);
  check_workspace("linalg.eigh", A, 2);
  check_uplo("linalg.eigh", uplo);
  return {batch_spec(A, {A.size(-1)}, to_real(A.dtype())),
          columns_spec(batch_of(A), A.size(-1), A.size(-1), A.dtype(), A.device())};
}

TensorSpec eigvalsh_shape(const Tensor& A, std::string_view uplo) {
  check_square("linalg.eigvalsh", A);
  check_uplo("linalg.eigvalsh", uplo);
  return batch_spec(A, {A.size(-1)}, to_real(A.dtype()));
}

std::array<TensorSpec, 2> eig_shape(const Tensor& A) {
  check_square("linalg.eig", A);
  DType complex = to_complex(A.dtype());
  return {batch_spec(A, {A.size(-1)}, complex), columns_spec(batch_of(A), A.size(-1), A.size(-1), complex, A.device())};
}

TensorSpec eigvals_shape(const Tensor& A) {
  check_square("linalg.eigvals", A);
  return batch_spec(A, {A.size(-1)}, to_complex(A.dtype()));
}

std::array<TensorSpec, 3> ldl_factor_ex_shape(const Tensor& A, bool, bool) {
  check_square("linalg.ldl_factor", A);
  return {columns_spec(batch_of(A), A.size(-1), A.size(-1), A.dtype(), A.device()),
          batch_spec(A, {A.size(-1)}, DType::int32), batch_spec(A, {}, DType::int32)};
}

TensorSpec pivots_to_order_shape(const Tensor& pivots, int64_t rows) {
  TG_CHECK(pivots.dtype() == DType::int32, Runtime, "lu_unpack: LU_pivots must have torch.int32 dtype: got {}\n{}",
           pivots.dtype(), "hint: they are what linalg.lu_factor returns");
  TG_CHECK(pivots.ndim() >= 1 && pivots.size(-1) <= rows, Runtime,
           "lu_unpack: pivots of shape {} do not fit matrices of {} rows", format_ints(pivots.sizes()), rows);
  TensorSpec spec{DimVector(batch_of(pivots, 1)), DType::int64, pivots.device(), {}};
  spec.sizes.push_back(rows);
  return spec;
}

}  // namespace tapegrad
