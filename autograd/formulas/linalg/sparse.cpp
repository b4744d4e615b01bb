#include "tapegrad/autograd/formulas/linalg/sparse.h"

#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/formulas/linalg/linalg.h"

namespace tapegrad {

Tensor coo_mm_values_grad(const Tensor& grad, const Tensor& indices, const Tensor& dense) {
  const Tensor rows = raw::select(indices, 0, 0), cols = raw::select(indices, 0, 1);
  return sum(mul(index_select(grad, 0, rows), conj_of(index_select(dense, 0, cols))), OptionalInts(IntSpan{1}));
}

}  // namespace tapegrad
