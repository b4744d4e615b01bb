// Clipping of gradients. Parameters without a gradient are skipped.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::nn::utils {

// The norm of all tensors taken as one vector; norm_type may be infinity. Raises Runtime for a norm that is not finite,
// if error_if_nonfinite is set.
TG_API Tensor get_total_norm(TensorSpan tensors, double norm_type = 2, bool error_if_nonfinite = false);
// Scales the gradients by max_norm / total_norm where that is below 1.
TG_API void clip_grads_with_norm_(TensorSpan parameters, double max_norm, const Tensor& total_norm);
// Scales all gradients together so that their norm is at most max_norm; returns the norm before.
TG_API Tensor clip_grad_norm_(TensorSpan parameters, double max_norm, double norm_type = 2,
                              bool error_if_nonfinite = false);
// Clamps every element of every gradient to [-clip_value, clip_value].
TG_API void clip_grad_value_(TensorSpan parameters, double clip_value);

}  // namespace tapegrad::nn::utils
