#include "tapegrad/aten/sparse/products.h"

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
  const int dim = impl_of(a, "mm").compressed();
  return dim >= 0 ? compress(sum, {dim}) : sum;
}

}  // namespace

Tensor mm(const Tensor& input, const Tensor& mat2) {
  TG_CHECK(input.ndim() == 2 && mat2.ndim() == 2 && input.size(1) == mat2.size(0), Runtime,
           "mm: shapes {} and {} cannot be multiplied", format_ints(input.sizes()), format_ints(mat2.sizes()));
  if (input.is_sparse() && mat2.is_sparse()) return product(input, mat2);
  if (!input.is_sparse()) return sparse::transpose(sparse::mm(sparse::t(mat2), tapegrad::t(input)), 0, 1);
  TG_CHECK(sparse_dims(input) == 2, NotImplemented, "mm: expected a matrix with two sparse dimensions: got {}",
           sparse_dims(input));
  check_same_device("mm", device(input), mat2.device());
  return _coo_mm(indices(input), values(input), mat2, input.size(0));
}

Tensor mv(const Tensor& input, const Tensor& vec) {
  TG_CHECK(input.ndim() == 2 && vec.ndim() == 1 && !vec.is_sparse() && input.size(1) == vec.size(0), Runtime,
           "mv: expected a sparse matrix and a dense vector of its width: got sizes {} and {}",
           format_ints(input.sizes()), format_ints(vec.sizes()));
  return tapegrad::squeeze(sparse::mm(input, tapegrad::unsqueeze(vec, 1)), IntSpan({1}));
}

Tensor addmm(const Tensor& input, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  const Tensor product = tapegrad::mul(tapegrad::mm(mat1, mat2), alpha);
  if (beta.to<double>() == 0) return product;
  return tapegrad::add(tapegrad::mul(input, beta), product);
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

}  // namespace tapegrad::sparse
