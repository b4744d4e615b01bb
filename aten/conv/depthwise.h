// Convolutions of one channel each, in float32 or in 16 bits with the kernel and the sums in float32, of one or two
// dimensions, on the planes as they lie in memory: oneDNN would move them to its blocked layout and back, which takes
// several times as long as the sums. Threads share planes and bands of rows; the order of each sum depends on sizes
// only. Compiled per instruction set.
#pragma once

#include "tapegrad/aten/conv/geometry.h"

namespace tapegrad::cpu::TG_ISA::depthwise {

// Each returns false, with nothing written, where it is not meant for the sizes. All tensors are contiguous; bias may
// be null.
bool forward(const conv::Geometry& g, DType type, const void* x, const float* w, const float* bias, void* y);
bool grad_input(const conv::Geometry& g, DType type, const void* y, const float* w, void* x);
// float32 alone.
bool grad_weight(const conv::Geometry& g, const float* y, const float* x, float* w);

}  // namespace tapegrad::cpu::TG_ISA::depthwise
