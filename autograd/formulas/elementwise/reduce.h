// Gradients of reductions.
#pragma once

#include <limits>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::autograd {

// The number of elements that a reduction over `dim` combines into one.
TG_API double reduced_count(IntSpan sizes, OptionalInts dim);
// The gradient of a result as a view of the input's shape: reduced dimensions repeat it.
TG_API Tensor expand_reduced(const Tensor& grad, IntSpan sizes, OptionalInts dim, bool keepdim);

TG_API Tensor prod_backward(const Tensor& grad, const Tensor& input, const Tensor& result, std::optional<int64_t> dim,
                            bool keepdim);
// amax, amin: equal extremes share the gradient.
TG_API Tensor extreme_backward(const Tensor& grad, const Tensor& input, const Tensor& result, OptionalInts dim,
                               bool keepdim);
// max and min along a dimension: the chosen element gets it.
TG_API Tensor place_backward(const Tensor& grad, IntSpan sizes, int64_t dim, const Tensor& indices, bool keepdim);
TG_API Tensor var_backward(const Tensor& grad, const Tensor& input, OptionalInts dim, bool keepdim, double correction);
TG_API Tensor std_backward(const Tensor& grad, const Tensor& input, const Tensor& result, OptionalInts dim,
                           bool keepdim, double correction);
TG_API Tensor norm_backward(const Tensor& grad, const Tensor& input, const Tensor& result, double p, OptionalInts dim,
                            bool keepdim);

}  // namespace tapegrad::autograd
