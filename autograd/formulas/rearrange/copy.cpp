#include "tapegrad/autograd/formulas/rearrange/copy.h"

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_scan.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/engine/node.h"

namespace tapegrad {

Tensor copy_grad(const Tensor& grad, IntSpan sizes, DType dtype, Device device) {
  if (!is_differentiable(dtype)) return {};
  return autograd::reduce_to(grad, {DimVector(sizes), dtype, device});
}

Tensor masked_scatter_self_grad(const Tensor& grad, const Tensor& mask, IntSpan sizes) {
  return autograd::reduce_to(masked_fill(grad, mask, 0), {DimVector(sizes), grad.dtype(), grad.device()});
}

Tensor masked_scatter_source_grad(const Tensor& grad, const Tensor& mask, IntSpan sizes) {
  int64_t numel = checked_numel(sizes, "masked_scatter");
  if (grad.is_batched() || mask.is_batched()) {  // samples choose different numbers of elements: by their places
    const Tensor chosen = reshape(expand(mask, grad.sizes()), {-1});
    const Tensor places = clamp(sub(cumsum(chosen, 0, DType::int64), Scalar(1)), Scalar(0), Scalar(numel));
    const Tensor sums = index_add(zeros({numel + 1}, grad.dtype(), grad.device()), 0, places,
                                  masked_fill(reshape(grad, {-1}), logical_not(chosen), 0));
    return reshape(narrow(sums, 0, 0, numel), sizes);
  }
  Tensor taken = masked_select(grad, mask);
  if (taken.numel() < numel) {
    Tensor parts[] = {taken, zeros({numel - taken.numel()}, grad.dtype(), grad.device())};
    taken = cat(parts, 0);
  }
  return reshape(taken, sizes);
}

}  // namespace tapegrad
