#include "tapegrad/autograd/formulas/linalg/sparse.h"

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_sparse.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/sparse/products.h"
#include "tapegrad/autograd/formulas/linalg/linalg.h"

namespace tapegrad {

Tensor coo_mm_values_grad(const Tensor& grad, const Tensor& indices, const Tensor& values, const Tensor& dense) {
  const Tensor rows = raw::select(indices, 0, 0), cols = raw::select(indices, 0, 1);
  if (values.ndim() == 3) {  // blocks: of the rows and columns that meet, every pair
    if (values.numel() == 0) return zeros_like(values);
    const int64_t height = values.size(1), width = values.size(2), columns = grad.size(1);
    const Tensor above = reshape(grad, {grad.size(0) / height, height, columns});
    const Tensor right = reshape(dense, {dense.size(0) / width, width, columns});
    return matmul(index_select(above, 0, rows), transpose(conj_of(index_select(right, 0, cols)), 1, 2));
  }
  return sum(mul(index_select(grad, 0, rows), conj_of(index_select(dense, 0, cols))), OptionalInts(IntSpan{1}));
}

Tensor coo_mm_dense_grad(const Tensor& grad, const Tensor& indices, const Tensor& values, const Tensor& dense) {
  const Tensor entries = values.ndim() == 3 ? transpose(values, 1, 2) : values;
  return _coo_mm(flip(indices, IntSpan({0})), conj_of(entries), grad, dense.size(0));
}

Tensor coo_solve_values_grad(const Tensor& grad, const Tensor& indices, const Tensor& values, const Tensor& result,
                             bool upper, bool unitriangular) {
  const Tensor rows = raw::select(indices, 0, 0), cols = raw::select(indices, 0, 1);
  const Tensor first = upper ? rows : cols, second = upper ? cols : rows;
  const Tensor read = unitriangular ? raw::lt(first, Operand(second)) : raw::le(first, Operand(second));
  const Tensor of_B = _coo_solve(flip(indices, IntSpan({0})), conj_of(values), grad, !upper, unitriangular);
  const Tensor terms = coo_mm_values_grad(neg(of_B), indices, values, result);
  return where(read, Operand(terms), Operand(zeros_like(terms)));
}

}  // namespace tapegrad
