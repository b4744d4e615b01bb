// Shapes and checks of inverses, determinants and solvers.
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/kernels_solve.h"
#include "tapegrad/aten/linalg/blas/blas.h"
#include "tapegrad/aten/linalg/matrices.h"

namespace tapegrad {
namespace {

// Matrices A (n x n) and B (n x k) with batches that broadcast: the shape of the solution.
TensorSpec solution_spec(const char* op, const Tensor& A, const Tensor& B, const char* name = "A") {
  check_square(op, A, name);
  check_matrix(op, B, "B");
  check_same_dtype(op, A, B);
  TG_CHECK(A.size(-1) == B.size(-2), Runtime, "{}: shapes {} and {} do not fit: {} has {} rows and B has {}", op,
           format_ints(A.sizes()), format_ints(B.sizes()), name, A.size(-1), B.size(-2));
  return columns_spec(broadcast_sizes(batch_of(A), batch_of(B), op), B.size(-2), B.size(-1), A.dtype(), A.device());
}

void check_pivots(const char* op, const Tensor& LU, const Tensor& pivots) {
  TG_CHECK(pivots.dtype() == DType::int32, Runtime,
           "{}: pivots must have dtype int32: got {}\nhint: they are what the factorisation returns", op,
           pivots.dtype());
  TG_CHECK(pivots.ndim() == LU.ndim() - 1 && pivots.sizes() == batch_of(LU, 1), Runtime,
           "{}: pivots of shape {} do not fit factors of shape {}", op, format_ints(pivots.sizes()),
           format_ints(LU.sizes()));
}

}  // namespace

std::array<TensorSpec, 2> inv_ex_shape(const Tensor& A, bool) {
  check_square("linalg.inv", A);
  return {columns_spec(batch_of(A), A.size(-1), A.size(-1), A.dtype(), A.device()), batch_spec(A, {}, DType::int32)};
}

std::array<TensorSpec, 3> det_shape(const Tensor& A) {
  check_square("linalg.det", A);
  return {batch_spec(A, {}, A.dtype()), columns_spec(batch_of(A), A.size(-1), A.size(-1), A.dtype(), A.device()),
          batch_spec(A, {A.size(-1)}, DType::int32)};
}

std::array<TensorSpec, 4> slogdet_shape(const Tensor& A) {
  check_square("linalg.slogdet", A);
  return {batch_spec(A, {}, A.dtype()), batch_spec(A, {}, to_real(A.dtype())),
          columns_spec(batch_of(A), A.size(-1), A.size(-1), A.dtype(), A.device()),
          batch_spec(A, {A.size(-1)}, DType::int32)};
}

std::array<TensorSpec, 4> solve_shape(const Tensor& A, const Tensor& B) {
  TensorSpec x = solution_spec("linalg.solve", A, B);
  return {std::move(x), columns_spec(batch_of(A), A.size(-1), A.size(-1), A.dtype(), A.device()),
          batch_spec(A, {A.size(-1)}, DType::int32), batch_spec(A, {}, DType::int32)};
}

TensorSpec lu_solve_shape(const Tensor& LU, const Tensor& pivots, const Tensor& B, bool) {
  TensorSpec x = solution_spec("linalg.lu_solve", LU, B, "LU");
  check_pivots("linalg.lu_solve", LU, pivots);
  return x;
}

TensorSpec solve_triangular_shape(const Tensor& A, const Tensor& B, bool, bool) {
  return solution_spec("linalg.solve_triangular", A, B);
}

TensorSpec ldl_solve_shape(const Tensor& LD, const Tensor& pivots, const Tensor& B, bool) {
  TensorSpec x = solution_spec("linalg.ldl_solve", LD, B, "LD");
  check_pivots("linalg.ldl_solve", LD, pivots);
  return x;
}

std::array<TensorSpec, 3> lstsq_shape(const Tensor& A, const Tensor& B, double, std::string_view driver) {
  constexpr const char* op = "linalg.lstsq";
  check_matrix(op, A);
  check_matrix(op, B, "B");
  check_same_dtype(op, A, B);
  TG_CHECK(driver == "gels" || driver == "gelsy" || driver == "gelsd" || driver == "gelss", Runtime,
           "{}: driver must be 'gels', 'gelsy', 'gelsd' or 'gelss': got '{}'", op, driver);
  TG_CHECK(A.size(-2) == B.size(-2) && batch_of(A) == batch_of(B), Runtime,
           "{}: shapes {} and {} do not fit: A has {} rows and B has {}", op, format_ints(A.sizes()),
           format_ints(B.sizes()), A.size(-2), B.size(-2));
  TG_CHECK(std::max(A.size(-1), A.size(-2)) <= blas::kMaxInt / 64 / std::max<int64_t>(B.size(-1), 1), Runtime,
           "{}: too large for LAPACK's workspace: shapes {} and {}", op, format_ints(A.sizes()),
           format_ints(B.sizes()));
  TensorSpec rank{{0}, DType::int64, A.device(), {}}, values{{0}, to_real(A.dtype()), A.device(), {}};
  if (driver != "gels") rank = batch_spec(A, {}, DType::int64);
  if (driver == "gelsd" || driver == "gelss")
    values = batch_spec(A, {std::min(A.size(-1), A.size(-2))}, to_real(A.dtype()));
  return {columns_spec(batch_of(A), A.size(-1), B.size(-1), A.dtype(), A.device()), std::move(rank), std::move(values)};
}

TensorSpec pinv_shape(const Tensor& A, const Tensor&, const Tensor&, bool hermitian) {
  TG_CHECK(A.ndim() >= 2, Runtime, "linalg.pinv: expected a tensor with 2 or more dimensions: got shape {}",
           format_ints(A.sizes()));
  if (hermitian)
    check_square("linalg.pinv", A);
  else
    check_matrix("linalg.pinv", A);
  return batch_spec(A, {A.size(-1), A.size(-2)}, A.dtype());
}

TensorSpec matrix_exp_shape(const Tensor& A) {
  // 16 bits are computed in float32.
  check_square("linalg.matrix_exp",
               is_half(A.dtype()) ? raw::empty(A.sizes(), DType::float32, Device(DeviceType::Meta)) : A);
  return columns_spec(batch_of(A), A.size(-1), A.size(-1), A.dtype(), A.device());
}

}  // namespace tapegrad
