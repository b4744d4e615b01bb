// Parameters as one flat vector, and back.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::nn::utils {

// All parameters flattened into one vector.
TG_API Tensor parameters_to_vector(TensorSpan parameters);
// Gives the parameters the values of a flat vector. Raises Runtime, before anything is written, for another number of
// elements.
TG_API void vector_to_parameters(const Tensor& vector, TensorSpan parameters);

}  // namespace tapegrad::nn::utils
