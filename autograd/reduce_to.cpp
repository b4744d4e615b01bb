#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/engine/node.h"

namespace tapegrad::autograd {

Tensor reduce_to_slow(const Tensor& grad, const OutputMeta& meta) {
  Tensor g = grad;
  if (g.is_complex() && !is_complex(meta.dtype) && is_differentiable(meta.dtype)) g = tapegrad::real(g);
  if (g.sizes() != IntSpan(meta.sizes)) {
    int64_t extra = g.ndim() - static_cast<int64_t>(meta.sizes.size());
    TG_CHECK(extra >= 0, Runtime, "backward: a gradient of sizes {} does not belong to a tensor of sizes {}",
             format_ints(g.sizes()), format_ints(meta.sizes));
    DimVector dims;
    for (int64_t d = 0; d < g.ndim(); ++d)
      if (d < extra || (meta.sizes[d - extra] == 1 && g.impl()->size(static_cast<int>(d)) != 1)) dims.push_back(d);
    if (!dims.empty()) g = tapegrad::sum(g, IntSpan(dims), true);
    if (extra > 0) g = tapegrad::reshape(g, meta.sizes);
  }
  if (g.dtype() != meta.dtype) g = tapegrad::to(g, meta.dtype);
  if (!g.is_batched() && !meta.device.is_batched() && g.device() != meta.device)
    g = tapegrad::to(g, std::nullopt, meta.device);
  return g;
}

Tensor grad_or_zeros(const Tensor& grad, const OutputMeta& meta) {
  if (grad.defined()) return grad;
  Tensor zeros = empty_tensor(meta.sizes, meta.dtype, meta.device);
  raw::fill_(zeros, 0);
  return zeros;
}

}  // namespace tapegrad::autograd
