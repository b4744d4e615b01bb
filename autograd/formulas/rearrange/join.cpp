#include "tapegrad/autograd/formulas/rearrange/join.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/engine/node.h"

namespace tapegrad {

namespace {
Tensor in_dtype(const Tensor& grad, DType dtype) {
  if (!is_differentiable(dtype)) return {};
  return autograd::reduce_to(grad, {DimVector(grad.sizes()), dtype, grad.device()});
}
}  // namespace

std::vector<Tensor> cat_grad(const Tensor& grad, const std::vector<DimVector>& sizes, const std::vector<DType>& dtypes,
                             int64_t dim) {
  const int64_t d = grad.ndim() == 1 ? 0 : wrap_dim(dim, grad.ndim(), "cat");  // any dim joins empty vectors
  std::vector<Tensor> pieces;
  int64_t start = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (static_cast<int>(sizes[i].size()) != grad.ndim()) {  // an empty vector among others
      pieces.push_back(in_dtype(zeros(sizes[i], grad.dtype(), grad.device()), dtypes[i]));
      continue;
    }
    pieces.push_back(in_dtype(narrow(grad, d, start, sizes[i][d]), dtypes[i]));
    start += sizes[i][d];
  }
  return pieces;
}

std::vector<Tensor> stack_grad(const Tensor& grad, const std::vector<DType>& dtypes, int64_t dim) {
  std::vector<Tensor> pieces = unbind(grad, dim);
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = in_dtype(pieces[i], dtypes[i]);
  return pieces;
}

}  // namespace tapegrad
