// The shape of the result of advanced indexing, shared by shape functions and kernels. Pure functions.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

struct IndexPlan {
  uint64_t indexed = 0;   // dimensions that have an index
  int outer_dims = 0;     // dimensions without index that stand before the index dimensions in the result
  DimVector index_sizes;  // common shape of the indices
  DimVector sizes;        // of the result
};

// Indices are integer tensors or undefined (the whole dimension). The index dimensions stand where the indexed
// ones stood when those are neighbours, else in front. Raises Index for a shape mismatch or too many indices.
TG_API IndexPlan plan_index(const Tensor& input, TensorSpan indices, const char* op);

// Replaces bool (and uint8) masks by the integer indices of their true elements. Raises Index for a mask whose shape
// is not that of the dimensions it stands for.
TG_API std::vector<Tensor> expand_masks(const Tensor& input, TensorSpan indices, const char* op);

}  // namespace tapegrad
