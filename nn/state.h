// What a long short-term memory carries from step to step: (h, c).
#pragma once

#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::nn {

using State = std::tuple<Tensor, Tensor>;

}  // namespace tapegrad::nn
