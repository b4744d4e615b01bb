// Gradients of the operators that address elements through index tensors. Written in tapegrad's own operators.
#pragma once

#include <array>
#include <string_view>
#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

Tensor index_grad(const Tensor& grad, IntSpan sizes, TensorSpan indices);
Tensor index_put_self_grad(const Tensor& grad, TensorSpan indices, bool accumulate);
Tensor index_put_values_grad(const Tensor& grad, TensorSpan indices, IntSpan sizes);
Tensor index_select_grad(const Tensor& grad, IntSpan sizes, int64_t dim, const Tensor& index, bool sparse);
Tensor index_add_source_grad(const Tensor& grad, int64_t dim, const Tensor& index, IntSpan sizes, const Scalar& alpha);
// The index with negative entries counted from the front.
Tensor index_unwrapped(const Tensor& index, const Tensor& t, int64_t dim);
Tensor gather_grad(const Tensor& grad, IntSpan sizes, int64_t dim, const Tensor& index, bool sparse);
// The gradient of a source, which may be larger than the index.
Tensor scatter_source_grad(const Tensor& grad, int64_t dim, const Tensor& index, IntSpan sizes);
Tensor scatter_src_reduce_self_grad(const Tensor& grad, std::string_view reduce);
std::tuple<Tensor, Tensor> scatter_reduce_grad(const Tensor& grad, const Tensor& input, int64_t dim,
                                               const Tensor& index, const Tensor& src, std::string_view reduce,
                                               bool include_self, const Tensor& result, std::array<bool, 2> mask);
Tensor masked_select_grad(const Tensor& grad, const Tensor& mask, IntSpan sizes);
Tensor embedding_weight_grad(const Tensor& grad, const Tensor& indices, int64_t num_weights, int64_t padding_idx,
                             bool scale_grad_by_freq, bool sparse);
// Gradients of _embedding_bag for weight and for per_sample_weights.
Tensor embedding_bag_weight_grad(const Tensor& grad, int64_t num_weights, const Tensor& indices, const Tensor& offsets,
                                 const Tensor& per_sample_weights, bool mean, int64_t padding_idx,
                                 bool scale_grad_by_freq, bool sparse);
Tensor embedding_bag_factor_grad(const Tensor& grad, const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                                 bool mean, int64_t padding_idx);
Tensor embedding_backward_grad(const Tensor& grad, const Tensor& indices, int64_t padding_idx, bool scale_grad_by_freq);

}  // namespace tapegrad
