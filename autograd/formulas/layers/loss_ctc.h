// The second derivative of ctc_loss, which is not implemented.
#pragma once

#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Raises NotImplemented.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> ctc_loss_double_backward();

}  // namespace tapegrad
