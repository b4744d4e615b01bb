// Activations composed of other operators; see aten/ops/pointwise/activation.toml.
#include "tapegrad/aten/functions_activation.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad::composite {

Tensor glu(const Tensor& input, int64_t dim) {
  TG_CHECK(input.ndim() > 0, Runtime, "glu: needs at least one dimension: got shape []");
  const int64_t d = wrap_dim(dim, input.ndim(), "glu");
  const int64_t half = input.size(d) / 2;
  TG_CHECK(input.size(d) == 2 * half, Runtime, "glu: the size of dimension {} must be even: got {}", dim,
           input.size(d));
  return input.narrow(d, 0, half) * sigmoid(input.narrow(d, half, half));
}

Tensor prelu(const Tensor& input, const Tensor& weight) {
  TG_CHECK(weight.ndim() <= 1, Runtime, "prelu: weight must have at most one dimension: got shape {}",
           format_ints(weight.sizes()));
  TG_CHECK(input.dtype() == weight.dtype(), Runtime, "prelu: input and weight must have the same dtype: got {} and {}",
           input.dtype(), weight.dtype());
  if (weight.numel() == 1) return _prelu(input, weight.ndim() == 0 ? weight : weight.reshape({}));
  const int64_t channels = input.ndim() >= 2 ? input.size(1) : 1;
  TG_CHECK(weight.numel() == channels, Runtime,
           "prelu: weight must have one element or one per channel: got {} for {} channels", weight.numel(), channels);
  DimVector shape(static_cast<size_t>(input.ndim()), 1);
  if (input.ndim() >= 2) shape[1] = channels;
  return _prelu(input, weight.reshape(shape));
}

}  // namespace tapegrad::composite
