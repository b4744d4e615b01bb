#include "tapegrad/aten/sparse/products.h"

#include <limits>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_scan.h"
#include "tapegrad/aten/functions_sparse.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/sparse/operators.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"

namespace tapegrad::sparse {
namespace {

void check_product(const char* op, const Tensor& a, const Tensor& b) {
  TG_CHECK(a.ndim() == 2 && b.ndim() == 2, Runtime, "{}: expected two matrices: got sizes {} and {}", op,
           format_ints(a.sizes()), format_ints(b.sizes()));
  TG_CHECK(a.size(1) == b.size(0), Runtime,
           "{}: shapes {} and {} cannot be multiplied: inner sizes are {} and {} ({}x{} and {}x{})", op,
           format_ints(a.sizes()), format_ints(b.sizes()), a.size(1), b.size(0), a.size(0), a.size(1), b.size(0),
           b.size(1));
}

// Each entry of a meets the entries of one row of b. O(products), in time and memory; recorded.
Tensor product(const Tensor& a, const Tensor& given) {
  check_same_device("mm", device(a), device(given));
  TG_CHECK(impl_of(a, "mm").plain() && impl_of(given, "mm").plain(), NotImplemented,
           "mm: two sparse matrices, of which one is in blocks, cannot be multiplied\nuse to_sparse()");
  TG_CHECK(sparse_dims(a) == 2 && sparse_dims(given) == 2, NotImplemented,
           "mm: expected matrices with two sparse dimensions: got {} and {}", sparse_dims(a), sparse_dims(given));
  const Tensor b = compress(given, {0}), starts = raw::to(impl_of(b, "mm").starts(), DType::int64);
  const Tensor inner = raw::select(indices(a), 0, 1), begin = raw::index_select(starts, 0, inner);
  const Tensor counts = raw::sub(raw::index_select(starts, 0, raw::add(inner, 1)), begin);
  const Tensor first = raw::_repeat_interleave_self(counts), before = raw::sub(raw::cumsum(counts, 0), counts);
  const Tensor place = raw::_arange(0, first.numel(), 1, DType::int64, first.device());
  const Tensor second = raw::add(place, raw::index_select(raw::sub(begin, before), 0, first));
  const Tensor rows = raw::index_select(raw::select(indices(a), 0, 0), 0, first);
  const Tensor columns = raw::index_select(raw::select(indices(b), 0, 1), 0, second);
  const Tensor terms =
      tapegrad::mul(tapegrad::index_select(values(a), 0, first), tapegrad::index_select(values(b), 0, second));
  const Tensor parts[] = {rows, columns};
  const int64_t sizes[] = {a.size(0), b.size(1)};
  const Tensor sum = coalesce(Tensor(make_intrusive<SparseImpl>(raw::stack(parts, 0), terms, sizes, false)));
  return impl_of(a, "mm").compressed() >= 0 ? compress(sum, {0}) : sum;
}

}  // namespace

Tensor mm(const Tensor& input, const Tensor& mat2) {
  check_product("mm", input, mat2);
  if (input.is_sparse() && mat2.is_sparse()) return product(input, mat2);
  if (!input.is_sparse()) return sparse::transpose(sparse::mm(sparse::t(mat2), tapegrad::t(input)), 0, 1);
  TG_CHECK(sparse_dims(input) == 2, NotImplemented, "mm: expected a matrix with two sparse dimensions: got {}",
           sparse_dims(input));
  check_same_device("mm", device(input), mat2.device());
  return _coo_mm(indices(input), values(input), mat2, input.size(0));
}

Tensor mv(const Tensor& input, const Tensor& vec) {
  TG_CHECK(input.ndim() == 2 && vec.ndim() == 1 && !vec.is_sparse(), Runtime,
           "mv: expected a sparse matrix and a dense vector: got sizes {} and {}", format_ints(input.sizes()),
           format_ints(vec.sizes()));
  TG_CHECK(input.size(1) == vec.size(0), Runtime, "mv: size mismatch, got mat ({}x{}), vec ({})", input.size(0),
           input.size(1), vec.size(0));
  return tapegrad::squeeze(sparse::mm(input, tapegrad::unsqueeze(vec, 1)), IntSpan({1}));
}

Tensor addmm(const Tensor& input, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  check_product("addmm", mat1, mat2);
  Tensor product = tapegrad::mul(tapegrad::mm(mat1, mat2), alpha);
  const bool sparse = product.is_sparse() && input.is_sparse();
  if (product.is_sparse() && !sparse) product = to_dense(product);
  if (beta.to<complex128_t>() == complex128_t(0))  // not read; its form counts
    return sparse && impl_of(input, "addmm").compressed() >= 0 ? compress(product, form_of(input)) : product;
  Tensor term = tapegrad::mul(input, beta);
  if (!input.is_sparse()) return tapegrad::add(product, term);
  return sparse ? tapegrad::add(term, product) : tapegrad::add(product, term);
}

Tensor addmv(const Tensor& input, const Tensor& mat, const Tensor& vec, const Scalar& beta, const Scalar& alpha) {
  TG_CHECK(!input.is_sparse(), NotImplemented, "addmv: the vector that is added must be dense\nuse to_dense()");
  const Tensor product = tapegrad::mul(tapegrad::mv(mat, vec), alpha);
  if (beta.to<complex128_t>() == complex128_t(0)) return product;
  return tapegrad::add(product, tapegrad::mul(input, beta));
}

std::tuple<Tensor, Tensor> triangular_solve(const Tensor& input, const Tensor& A, bool upper, bool transpose,
                                            bool unitriangular) {
  TG_CHECK(A.is_sparse() && !input.is_sparse() && A.ndim() == 2 && A.size(0) == A.size(1) && input.ndim() == 2 &&
               input.size(0) == A.size(0) && sparse_dims(A) == 2,
           Runtime,
           "triangular_solve: expected a dense matrix and a square sparse one of its height: got sizes {} and {}",
           format_ints(input.sizes()), format_ints(A.sizes()));
  check_same_device("triangular_solve", input.device(), device(A));
  const Tensor a = elements(A);
  const Tensor none = empty({0}, A.dtype(), input.device());  // a copy of A is of no use; PyTorch's is empty, too
  if (values(a).numel() == 0 && !unitriangular)               // singular, which PyTorch says in this way
    return {full(input.sizes(), Scalar(std::numeric_limits<double>::quiet_NaN()), input.dtype(), input.device()), none};
  const Tensor places = transpose ? raw::flip(indices(a), IntSpan({0})) : indices(a);
  return {_coo_solve(places, values(a), input, upper != transpose, unitriangular), none};
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  TG_CHECK(weight.ndim() == 2 && (input.ndim() == 2 || (input.ndim() > 0 && !input.is_sparse())), Runtime,
           "linear: a sparse operand needs matrices: got sizes {} and {}", format_ints(input.sizes()),
           format_ints(weight.sizes()));
  if (input.ndim() != 2) {  // rows of a matrix
    DimVector sizes(input.sizes());
    const Tensor rows = sparse::linear(tapegrad::reshape(input, {-1, input.size(-1)}), weight, bias);
    sizes[sizes.size() - 1] = rows.size(1);
    return tapegrad::reshape(rows, sizes);
  }
  const Tensor product = tapegrad::mm(input, tapegrad::t(weight));
  return bias.defined() ? tapegrad::add(product, bias) : product;
}

Tensor pow(const Operand& input, const Operand& exponent) {
  const Tensor& base = input.tensor();
  TG_CHECK(is_sparse(base) && exponent.tensor().ndim() == 0 && !is_sparse(exponent), NotImplemented,
           "pow: a sparse tensor is raised to a number alone: got sizes {} and {}", format_ints(base.sizes()),
           format_ints(exponent.tensor().sizes()));
  TG_CHECK(exponent.tensor().item().to<complex128_t>().real() > 0, Runtime,
           "pow: a sparse tensor is raised to numbers above 0: others make no zeros of zeros\nuse to_dense()");
  const Tensor t = impl_of(base, "pow").compressed() >= 0 ? base : coalesce(base);
  return with_values(t, tapegrad::pow(values(t), exponent));
}

Tensor empty_like(const Tensor& input, std::optional<DType> dtype, std::optional<Device> target,
                  std::optional<MemoryFormat>) {
  if (impl_of(input, "empty_like").compressed() < 0) return sparse::zeros_like(input, dtype, target, {});
  const Tensor kept = sparse::to(alias(input), std::nullopt, target, false, false, {});
  const Tensor places = kept.is_same(input) ? sparse::clone(kept, {}) : kept;
  return with_values(places, raw::empty_like(values(kept), dtype, std::nullopt, {}));
}

Tensor new_zeros(const Tensor& input, IntSpan size, std::optional<DType> dtype, std::optional<Device> target) {
  const SparseImpl& impl = impl_of(input, "new_zeros");
  const int dim = impl.compressed();
  const int64_t n = static_cast<int64_t>(size.size()), batch = dim < 0 ? 0 : n - 2;
  TG_CHECK(batch >= 0, Runtime,
           "torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size {}",
           format_ints(size));
  TG_CHECK(!impl.in_blocks(), Runtime,
           "empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got one in blocks");
  const DType kind = dtype.value_or(input.dtype());
  const Device at = target.value_or(device(input));
  DimVector none(size.subspan(0, static_cast<size_t>(batch))), starts(none);
  none.push_back(0);
  if (dim >= 0) starts.push_back(size[static_cast<size_t>(batch + dim)] + 1);
  checked_numel(size, "new_zeros");
  return Tensor(make_intrusive<SparseImpl>(zeros({n, 0}, DType::int64, at), zeros(none, kind, at), size, true, dim,
                                           dim < 0 ? Tensor() : zeros(starts, DType::int64, at)));
}

Tensor zeros_like(const Tensor& input, std::optional<DType> dtype, std::optional<Device> target,
                  std::optional<MemoryFormat>) {
  const SparseImpl& impl = impl_of(input, "zeros_like");
  const DType kind = dtype.value_or(input.dtype());
  const Device at = target.value_or(device(input));
  DimVector none(impl.values().sizes());
  none[static_cast<size_t>(impl.batch_dims())] = 0;  // entries
  const Tensor places = zeros({impl.indices().size(0), 0}, DType::int64, at);
  const Tensor starts = impl.starts().defined() ? zeros(impl.starts().sizes(), impl.starts().dtype(), at) : Tensor();
  return Tensor(
      make_intrusive<SparseImpl>(places, zeros(none, kind, at), input.sizes(), true, impl.compressed(), starts));
}

}  // namespace tapegrad::sparse
