// Convolutions that cut images into patches, as the first layer of a vision transformer does: their windows neither
// overlap nor leave gaps, so that the matrix of patches is the image in another order, and each of the three passes is
// one product with it. Float32, and 16-bit types that the processor multiplies, with sums in float. Compiled per
// instruction set.
#pragma once

#include "tapegrad/aten/conv/geometry.h"

namespace tapegrad::cpu::TG_ISA::patches {

// Each returns false, with nothing written, where it is not meant for the sizes or the type. All tensors are
// contiguous; bias may be undefined. The gradient of the weight is written in float32.
bool forward(const conv::Geometry& g, const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& out);
bool grad_input(const conv::Geometry& g, const Tensor& output, const Tensor& weight, const Tensor& out);
bool grad_weight(const conv::Geometry& g, const Tensor& output, const Tensor& input, const Tensor& out);

}  // namespace tapegrad::cpu::TG_ISA::patches
