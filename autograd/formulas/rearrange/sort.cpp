#include "tapegrad/autograd/formulas/rearrange/sort.h"

#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_view.h"

namespace tapegrad {

Tensor chosen_grad(const Tensor& grad, IntSpan sizes, int64_t dim, const Tensor& indices, bool reduced) {
  if (sizes.empty()) return grad;
  const Tensor to = zeros(sizes, grad.dtype(), grad.device());
  return reduced ? _scatter_src(to, dim, unsqueeze(indices, dim), unsqueeze(grad, dim))
                 : _scatter_src(to, dim, indices, grad);
}

}  // namespace tapegrad
