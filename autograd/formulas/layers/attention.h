// Second derivatives of attention.
#pragma once

#include <array>
#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The gradients of _attention_grad(grad_output, query, key, value, ...) from those of its results, by whole matrices.
std::tuple<Tensor, Tensor, Tensor, Tensor> attention_double_grad(const Tensor& grad_query, const Tensor& grad_key,
                                                                 const Tensor& grad_value, const Tensor& grad_output,
                                                                 const Tensor& query, const Tensor& key,
                                                                 const Tensor& value, const Tensor& attn_mask,
                                                                 bool is_causal, double scale, const Tensor& kept,
                                                                 double kept_scale, std::array<bool, 4> mask);

}  // namespace tapegrad
