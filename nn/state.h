// The state of an LSTM: (h, c).
#pragma once

#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::nn {

using State = std::tuple<Tensor, Tensor>;

}  // namespace tapegrad::nn
