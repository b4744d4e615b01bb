#include "tapegrad/nn/utils/convert_parameters.h"

#include <vector>

#include "tapegrad/aten/functions_join.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::nn::utils {

Tensor parameters_to_vector(TensorSpan parameters) {
  std::vector<Tensor> parts;
  for (const Tensor& p : parameters) parts.push_back(p.reshape({-1}));
  return tapegrad::cat(parts);
}

void vector_to_parameters(const Tensor& vector, TensorSpan parameters) {
  int64_t total = 0;
  for (const Tensor& p : parameters) total += p.numel();
  TG_CHECK(vector.dim() == 1 && vector.numel() == total, Runtime,
           "vector_to_parameters: expected a vector of {} elements: got shape {}", total, format_ints(vector.sizes()));
  const NoGradGuard no_grad;
  int64_t at = 0;
  for (const Tensor& p : parameters) {
    p.copy_(vector.narrow(0, at, p.numel()).reshape(p.sizes()));
    at += p.numel();
  }
}

}  // namespace tapegrad::nn::utils
