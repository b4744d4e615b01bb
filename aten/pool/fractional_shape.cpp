// Fractional maximum pooling: checks, and the public functions.

#include "tapegrad/aten/functions_pool.h"
#include "tapegrad/aten/functions_random.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_pool.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {

std::array<TensorSpec, 2> fractional_max_pool_shape(const Tensor& input, IntSpan kernel_size, IntSpan output_size,
                                                    const Tensor& random_samples) {
  const size_t spatial = kernel_size.size();
  TG_CHECK((spatial == 2 || spatial == 3) && output_size.size() == spatial, Runtime,
           "fractional_max_pool: expected sizes of 2 or 3 dimensions: got {} and {}", format_ints(kernel_size),
           format_ints(output_size));
  TG_CHECK(input.is_floating_point(), Runtime, "fractional_max_pool: expected a floating tensor: got {}",
           input.dtype());
  TG_CHECK(static_cast<size_t>(input.ndim()) == spatial + 2, Runtime,
           "fractional_max_pool: expected input of {} or {} dimensions: got {}", spatial + 1, spatial + 2,
           format_ints(input.sizes()));
  DimVector sizes{input.size(0), input.size(1)};
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t in = input.sizes()[d + 2];
    TG_CHECK(kernel_size[d] > 0 && output_size[d] > 0 && kernel_size[d] <= in && output_size[d] <= in &&
                 output_size[d] + kernel_size[d] - 1 <= in,
             Runtime, "fractional_max_pool: {} windows of {} do not fit into {} elements of input {}", output_size[d],
             kernel_size[d], in, format_ints(input.sizes()));
    sizes.push_back(output_size[d]);
  }
  TG_CHECK(random_samples.ndim() == 3 && random_samples.size(0) >= input.size(0) &&
               random_samples.size(1) == input.size(1) && random_samples.size(2) == static_cast<int64_t>(spatial) &&
               random_samples.dtype() == input.dtype(),
           Runtime, "fractional_max_pool: expected _random_samples ({}, {}, {}) of dtype {}: got {} {}", input.size(0),
           input.size(1), spatial, input.dtype(), random_samples.dtype(), format_ints(random_samples.sizes()));
  return {TensorSpec{sizes, input.dtype(), input.device(), {}}, TensorSpec{sizes, DType::int64, input.device(), {}}};
}

namespace composite {
namespace {

using Ratio = std::optional<std::vector<double>>;

std::tuple<Tensor, Tensor> pool(const char* op, const Tensor& input, IntSpan kernel_size, OptionalInts output_size,
                                const Ratio& output_ratio, const Tensor& random_samples) {
  const int64_t spatial = static_cast<int64_t>(kernel_size.size());
  TG_CHECK(output_size || output_ratio, Value, "{} requires specifying either an output_size or an output_ratio", op);
  TG_CHECK(input.ndim() == spatial + 1 || input.ndim() == spatial + 2, Runtime,
           "{}: expected input of {} or {} dimensions: got {}", op, spatial + 1, spatial + 2,
           format_ints(input.sizes()));
  DimVector sizes;
  if (output_size) {
    sizes = DimVector(*output_size);
  } else {
    TG_CHECK(output_ratio->size() == static_cast<size_t>(spatial) || output_ratio->size() == 1, Value,
             "{}: expected {} ratios: got {}", op, spatial, output_ratio->size());
    for (int64_t d = 0; d < spatial; ++d) {
      const double ratio = (*output_ratio)[output_ratio->size() == 1 ? 0 : static_cast<size_t>(d)];
      TG_CHECK(ratio > 0 && ratio < 1, Value, "{}: output_ratio must be between 0 and 1: got {}", op, ratio);
      sizes.push_back(static_cast<int64_t>(static_cast<double>(input.size(d - spatial)) * ratio));
    }
  }
  const Tensor batch = input.ndim() == spatial + 2 ? input : unsqueeze(input, 0);
  const Tensor samples = random_samples.defined()
                             ? random_samples
                             : rand({batch.size(0), batch.size(1), spatial}, {}, input.dtype(), input.device());
  auto [values, indices] = _fractional_max_pool(batch, kernel_size, sizes, samples);
  if (input.ndim() == spatial + 2) return {values, indices};
  return {squeeze(values, IntSpan({0})), squeeze(indices, IntSpan({0}))};
}

}  // namespace

std::tuple<Tensor, Tensor> fractional_max_pool2d_with_indices(const Tensor& input, IntSpan kernel_size,
                                                              OptionalInts output_size, const Ratio& output_ratio, bool,
                                                              const Tensor& random_samples) {
  return pool("fractional_max_pool2d", input, kernel_size, output_size, output_ratio, random_samples);
}

std::tuple<Tensor, Tensor> fractional_max_pool3d_with_indices(const Tensor& input, IntSpan kernel_size,
                                                              OptionalInts output_size, const Ratio& output_ratio, bool,
                                                              const Tensor& random_samples) {
  return pool("fractional_max_pool3d", input, kernel_size, output_size, output_ratio, random_samples);
}

}  // namespace composite
}  // namespace tapegrad
