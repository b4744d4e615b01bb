// Convolutions whose kernel is one place and which move by one: a product for each image, on the images as they lie in
// memory. oneDNN would reorder them before and after its own. Float32, and 16-bit types that the processor multiplies,
// with sums in float. Compiled per instruction set.
#pragma once

#include "tapegrad/aten/conv/geometry.h"

namespace tapegrad::cpu::TG_ISA::pointwise {

// Each returns false, with nothing written, where it is not meant for the sizes or the type. All tensors are
// contiguous; bias may be undefined. The gradient of the weight is written in float32.
bool forward(const conv::Geometry& g, const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& out);
bool grad_input(const conv::Geometry& g, const Tensor& output, const Tensor& weight, const Tensor& out);
bool grad_weight(const conv::Geometry& g, const Tensor& output, const Tensor& input, const Tensor& out);

}  // namespace tapegrad::cpu::TG_ISA::pointwise
