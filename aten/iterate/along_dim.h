// A contiguous tensor as an operator along one dimension sees it: [outer, n, inner].
#pragma once

#include <optional>

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

// Without a dimension: all elements as one line.
inline Extent extent_of(const Tensor& input, std::optional<int64_t> dim) {
  Extent e(input, dim.value_or(0));
  if (!dim) {
    e.outer = e.inner = 1;
    e.n = input.numel();
  }
  return e;
}

}  // namespace tapegrad
