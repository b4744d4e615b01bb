// Resampling of bytes by weights, compiled per instruction set.
#pragma once

#include <optional>
#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/upsample/taps.h"

namespace tapegrad::cpu::TG_ISA {

// Of dense uint8 tensors (N, C, spatial...); `scales`, where given, are output / input per spatial dimension.
void resample_bytes(const Tensor& input, resampling::Mode mode, bool align_corners,
                    const std::optional<std::vector<double>>& scales, const Tensor& out);

}  // namespace tapegrad::cpu::TG_ISA
