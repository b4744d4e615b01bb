// Norms of matrices, condition numbers, and small products.
#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/kernels_matrix.h"
#include "tapegrad/aten/kernels_reduce.h"
#include "tapegrad/aten/linalg/matrices.h"

namespace tapegrad::composite {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The two dimensions of the matrices, wrapped.
std::pair<int64_t, int64_t> matrix_dims(const char* op, const Tensor& A, IntSpan dim) {
  TG_CHECK(dim.size() == 2, Runtime, "{}: dim must be a 2-tuple: got {}", op, format_ints(dim));
  TG_CHECK(A.ndim() >= 2, Runtime, "{}: A must have at least 2 dimensions: got shape {}", op, format_ints(A.sizes()));
  int64_t rows = wrap_dim(dim[0], A.ndim(), op), columns = wrap_dim(dim[1], A.ndim(), op);
  TG_CHECK(rows != columns, Runtime, "{}: the two dimensions must be different: got {}", op, format_ints(dim));
  return {rows, columns};
}

Tensor checked(const char* op, const Tensor& A, std::optional<DType> dtype) {
  TG_CHECK(A.is_floating_point() || A.is_complex(), Runtime,
           "{}: Expected a floating point or complex tensor as A: got {}\nhint: convert it with .to()", op, A.dtype());
  if (!dtype || *dtype == A.dtype()) return A;
  TG_CHECK(is_complex(*dtype) == A.is_complex() && is_differentiable(*dtype), Runtime,
           "{}: dtype {} does not fit A of dtype {}", op, *dtype, A.dtype());
  TG_CHECK(element_size(*dtype) >= A.itemsize(), Runtime, "{}: dtype {} is narrower than A's {}", op, *dtype,
           A.dtype());
  return _to_copy(A, *dtype);
}

// The singular values (*, k) of the matrices in the two dimensions.
Tensor singular_values(const Tensor& A, int64_t rows, int64_t columns) {
  return linalg_svdvals(movedim(A, {rows, columns}, {-2, -1}));
}

// A reduction of the singular values, with the dimensions put back that keepdim keeps.
Tensor put_back(const Tensor& t, int64_t rows, int64_t columns, bool keepdim) {
  if (!keepdim) return t;
  return unsqueeze(unsqueeze(t, std::min(rows, columns)), std::max(rows, columns));
}

// The largest element, 0 of none.
Tensor largest(const Tensor& t, int64_t dim, bool keepdim = false) {
  return t.size(dim) == 0 ? sum(t, IntSpan{dim}, keepdim) : amax(t, IntSpan{dim}, keepdim);
}

}  // namespace

Tensor matrix_norm_order(const Tensor& A, const Scalar& ord, IntSpan dim, bool keepdim, std::optional<DType> dtype) {
  constexpr const char* op = "linalg.matrix_norm";
  auto [rows, columns] = matrix_dims(op, A, dim);
  Tensor a = checked(op, A, dtype);
  double p = ord.to<double>(), size = std::abs(p);
  TG_CHECK(size == 1 || size == 2 || size == kInfinity, Runtime,
           "{}: Order {} not supported: expected 'fro', 'nuc', or one of 1, 2, inf and their negatives", op,
           to_string(ord));
  if (size == 2) {
    Tensor values = singular_values(a, rows, columns);
    return put_back(p > 0 ? largest(values, -1) : amin(values, IntSpan{-1}), rows, columns, keepdim);
  }
  if (size == kInfinity) std::swap(rows, columns);
  Tensor sums = tapegrad::vector_norm(a, 1, IntSpan{rows}, keepdim);
  int64_t at = keepdim || rows > columns ? columns : columns - 1;
  return p > 0 ? largest(sums, at, keepdim) : amin(sums, IntSpan{at}, keepdim);
}

Tensor matrix_norm_name(const Tensor& A, std::string_view ord, IntSpan dim, bool keepdim, std::optional<DType> dtype) {
  constexpr const char* op = "linalg.matrix_norm";
  TG_CHECK(ord == "fro" || ord == "nuc", Runtime, "{}: Order {} not supported: expected 'fro', 'nuc' or a number", op,
           ord);
  auto [rows, columns] = matrix_dims(op, A, dim);
  Tensor a = checked(op, A, dtype);
  if (ord == "fro") return tapegrad::vector_norm(a, 2, IntSpan{rows, columns}, keepdim);
  return put_back(sum(singular_values(a, rows, columns), IntSpan{-1}), rows, columns, keepdim);
}

Tensor linalg_norm_order(const Tensor& A, const std::optional<Scalar>& ord, OptionalInts dim, bool keepdim,
                         std::optional<DType> dtype) {
  if (!ord) return tapegrad::vector_norm(A, 2, dim, keepdim, dtype);
  if (dim ? dim->size() == 2 : A.ndim() == 2)
    return _linalg_matrix_norm_order(A, *ord, dim ? *dim : IntSpan{0, 1}, keepdim, dtype);
  TG_CHECK(dim ? dim->size() == 1 : A.ndim() == 1, Runtime,
           "linalg.norm: ord {} is for vectors or matrices: got shape {}{}\nhint: dim chooses one or two dimensions",
           to_string(*ord), format_ints(A.sizes()), dim ? " and dim " + format_ints(*dim) : std::string());
  return tapegrad::vector_norm(A, *ord, dim, keepdim, dtype);
}

Tensor linalg_norm_name(const Tensor& A, std::string_view ord, OptionalInts dim, bool keepdim,
                        std::optional<DType> dtype) {
  TG_CHECK(dim ? dim->size() == 2 || dim->size() == 1 : A.ndim() == 2, Runtime,
           "linalg.norm: ord '{}' is for matrices, A must have at least 2 dimensions: got shape {}{}\nhint: dim "
           "chooses two dimensions",
           ord, format_ints(A.sizes()), dim ? " and dim " + format_ints(*dim) : std::string());
  return _linalg_matrix_norm_name(A, ord, dim ? *dim : IntSpan{0, 1}, keepdim, dtype);
}

Tensor norm_name(const Tensor& input, std::string_view p, OptionalInts dim, bool keepdim, std::optional<DType> dtype) {
  if (p == "fro") return tapegrad::vector_norm(input, 2, dim, keepdim, dtype);
  TG_CHECK(dim || input.ndim() == 2, Runtime,
           "norm: p 'nuc' is for matrices: got shape {}\nhint: dim chooses two dimensions", format_ints(input.sizes()));
  return _linalg_matrix_norm_name(input, p, dim ? *dim : IntSpan{0, 1}, keepdim, dtype);
}

namespace {

// norm(A) * norm(inv(A)), and inf where A is singular.
template <class Norm>
Tensor condition(const Tensor& A, Norm&& norm) {
  check_square("linalg.cond", A);
  auto [inverse, info] = linalg_inv_ex(A, false);
  Tensor singular = ne(info, 0);
  inverse = masked_fill(inverse, unsqueeze(unsqueeze(singular, -1), -1), 0);
  Tensor result = mul(norm(A), norm(inverse));
  return masked_fill(result, singular, kInfinity);
}

}  // namespace

Tensor linalg_cond_order(const Tensor& A, const std::optional<Scalar>& p) {
  double order = p ? p->to<double>() : 2;
  if (std::abs(order) != 2) return condition(A, [&](const Tensor& t) { return _linalg_matrix_norm_order(t, *p); });
  check_matrix("linalg.cond", A);
  Tensor values = linalg_svdvals(A);
  if (values.size(-1) == 0) return zeros(batch_of(A), values.dtype(), values.device());
  Tensor first = select(values, -1, 0), last = select(values, -1, -1);
  return order > 0 ? div(first, last) : div(last, first);
}

Tensor linalg_cond_name(const Tensor& A, std::string_view p) {
  return condition(A, [&](const Tensor& t) { return _linalg_matrix_norm_name(t, p); });
}

Tensor linalg_vecdot(const Tensor& x, const Tensor& y, int64_t dim) {
  TG_CHECK(x.dtype() == y.dtype(), Runtime, "linalg.vecdot: Expected x and y to have the same dtype: got {} and {}",
           x.dtype(), y.dtype());
  Tensor left = x.is_complex() ? conj(x) : x;
  int64_t d = wrap_dim(dim, std::max(x.ndim(), y.ndim()), "linalg.vecdot") - std::max(x.ndim(), y.ndim());
  // As products of rows and columns, without the tensor of all products.
  if (d == -1 && x.ndim() > 0 && y.ndim() > 0 && x.size(-1) == y.size(-1) && x.sizes() == y.sizes() && x.ndim() > 1)
    return squeeze(matmul(unsqueeze(left, -2), unsqueeze(y, -1)), IntSpan{-2, -1});
  Tensor products = mul(left, y);
  return products.ndim() == 0 ? products : sum(products, IntSpan{d}, false, products.dtype());
}

Tensor linalg_vander(const Tensor& input, std::optional<int64_t> N) {
  Tensor x = input.ndim() == 0 ? unsqueeze(input, 0) : input;
  int64_t n = N.value_or(x.size(-1));
  TG_CHECK(n > 1, Runtime, "linalg.vander: N must be greater than 1: got {}", n);
  DType dtype = is_integral(x.dtype()) || x.dtype() == DType::bool_ ? DType::int64 : x.dtype();
  DimVector sizes(x.sizes());
  sizes.push_back(1);
  Tensor one = ones(sizes, dtype, x.device());
  sizes[sizes.size() - 1] = n - 1;
  Tensor column = unsqueeze(x.dtype() == dtype ? x : _to_copy(x, dtype), -1);
  const Tensor parts[] = {one, cumprod(expand(column, sizes), -1)};
  return cat(TensorSpan(parts, 2), -1);
}

}  // namespace tapegrad::composite
