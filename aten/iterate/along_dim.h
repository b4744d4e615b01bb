// A contiguous tensor as an operator along one dimension sees it: [outer, n, inner].
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

struct Extent {
  int64_t outer = 1, n = 1, inner = 1;
  Extent(const Tensor& t, int64_t dim) {
    if (t.ndim() == 0) return;
    const int64_t d = wrap_dim(dim, t.ndim(), "dim");
    for (int64_t i = 0; i < t.ndim(); ++i) (i < d ? outer : i > d ? inner : n) *= t.size(i);
  }
};

}  // namespace tapegrad
