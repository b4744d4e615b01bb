// The gradient of a gradient that is not there.
#pragma once

#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Raises NotImplemented.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> ctc_loss_double_backward();

}  // namespace tapegrad
