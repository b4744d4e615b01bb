// gradcheck: compares the gradients that backward computes with finite differences, in float64 or complex128.
#pragma once

#include <functional>
#include <vector>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::autograd {

struct GradcheckOptions {
  double eps = 1e-6;
  double atol = 1e-5;
  double rtol = 1e-3;
};

using GradcheckFunction = std::function<std::vector<Tensor>(TensorSpan inputs)>;

// Raises Runtime, saying which derivative is wrong and by how much. Inputs that require grad are differentiated (each
// element of each output with respect to each of their elements); they must be float64 or complex128 leaves without
// overlapping memory.
TG_API void gradcheck(const GradcheckFunction& f, TensorSpan inputs, const GradcheckOptions& options = {});
// The same for the gradient of f, weighted with fixed pseudo-random numbers.
TG_API void gradgradcheck(const GradcheckFunction& f, TensorSpan inputs, const GradcheckOptions& options = {});

}  // namespace tapegrad::autograd
