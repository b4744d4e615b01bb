// Gradients of views. A view of a tensor reads some of its elements, so its gradient writes into zeros at the
// same places: `_embed_view(grad, sizes, view)` does so for views that reach no element twice, with the place
// computed for a contiguous tensor of the input's sizes. Written in tapegrad's own operators.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

Tensor slice_grad(const Tensor& grad, IntSpan sizes, int64_t dim, std::optional<int64_t> start,
                  std::optional<int64_t> end, int64_t step);
Tensor narrow_grad(const Tensor& grad, IntSpan sizes, int64_t dim, int64_t start, int64_t length);
Tensor select_grad(const Tensor& grad, IntSpan sizes, int64_t dim, int64_t index);
Tensor diagonal_grad(const Tensor& grad, IntSpan sizes, int64_t offset, int64_t dim1, int64_t dim2);
Tensor permute_grad(const Tensor& grad, IntSpan dims);
Tensor as_strided_grad(const Tensor& grad, IntSpan sizes, IntSpan strides, int64_t input_offset, IntSpan size,
                       IntSpan stride, std::optional<int64_t> storage_offset);
Tensor repeat_grad(const Tensor& grad, IntSpan repeats, IntSpan sizes);
Tensor roll_grad(const Tensor& grad, IntSpan shifts, IntSpan dims);
Tensor sum_to_sizes(const Tensor& grad, IntSpan sizes);

}  // namespace tapegrad
