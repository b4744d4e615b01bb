// Random operators composed of others.
#include <algorithm>
#include <cmath>

#include "tapegrad/aten/functions_activation.h"
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_random.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_random.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::composite {

using Gen = const GeneratorPtr&;

namespace {

void check_probability(double p, const char* op) {
  TG_CHECK(p >= 0 && p <= 1, Value, "{}: p lies in [0, 1]: got {}", op, p);
}

Tensor scaled_normal(IntSpan sizes, const Tensor& mean, const Tensor& std, Gen generator) {
  NoGradGuard guard;
  const DType dtype = promote_types(mean.dtype(), std.dtype());
  TG_CHECK(tapegrad::is_floating_point(dtype) || is_complex(dtype), Runtime,
           "normal: expected floating mean and std: got {} and {}", mean.dtype(), std.dtype());
  Tensor result = empty_tensor(sizes, dtype, mean.device());
  normal_(result, 0, 1, generator);
  mul_(result, std);
  return add_(result, mean);
}

void check_std(const Tensor& std) {
  TG_CHECK(!std.is_complex(), Runtime, "normal: expected a real std: got {}", std.dtype());
  if (std.is_meta()) return;
  TG_CHECK(raw::nonzero(raw::lt(std, 0)).size(0) == 0, Runtime, "normal: normal expects all elements of std >= 0.0");
}

// Ones and zeros, one per channel, to be broadcast over what follows.
Tensor channel_noise(const Tensor& input, double keep) {
  TG_CHECK(input.ndim() >= 2, Runtime, "feature dropout: expected at least 2 dimensions: got {}",
           format_ints(input.sizes()));
  DimVector sizes(static_cast<size_t>(input.ndim()), 1);
  sizes[0] = input.size(0);
  sizes[1] = input.size(1);
  Tensor noise = empty_tensor(sizes, input.dtype(), input.device());
  return _bernoulli_float_(noise, keep);
}

Tensor feature_dropout_of(const Tensor& input, double p, bool training, bool inplace, const char* op) {
  check_probability(p, op);
  if (!training || p == 0 || input.numel() == 0) return input;
  Tensor noise;
  {
    NoGradGuard guard;
    noise = p == 1 ? zeros_like(input) : channel_noise(input, 1 - p);
    if (p < 1) mul_(noise, 1 / (1 - p));
  }
  return inplace ? mul_(input, noise) : mul(input, noise);
}

void warn_of_dimensions(const char* op, int64_t ndim) {
  warn(
      fmt::format("{0}: Received a {1}-D input to {0}, which is deprecated and will result in an error in a future "
                  "release. Use dropout() to drop elements one by one, or a view with as many dimensions as {0} takes",
                  op, ndim));
}

// A batch without the sample dimension gets one.
Tensor unbatched(const Tensor& input, int batched_ndim, double p, bool training, bool inplace, const char* op) {
  if (input.ndim() == batched_ndim) return feature_dropout_of(input, p, training, inplace, op);
  Tensor result = feature_dropout_of(unsqueeze(input, 0), p, training, inplace, op);
  return inplace ? input : squeeze(result, IntSpan({0}));
}

Tensor alpha_dropout_of(const Tensor& input, double p, bool training, bool inplace, bool features, const char* op) {
  check_probability(p, op);
  if (!training || p == 0 || input.numel() == 0) return input;
  if (p == 1) return inplace ? mul_(input, 0) : mul(input, 0);
  // Klambauer et al., 2017: dropped elements take the value that SELU saturates at; an affine map restores mean and
  // variance.
  constexpr double kAlpha = 1.7580993408473766;
  const double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  Tensor scale, shift;
  {
    NoGradGuard guard;
    Tensor noise = features ? channel_noise(input, 1 - p) : _bernoulli_float_(empty_like(input), 1 - p);
    shift = add(mul(sub(noise, 1), kAlpha * a), kAlpha * a * p);
    scale = mul(noise, a);
  }
  return inplace ? add_(mul_(input, scale), shift) : add(mul(input, scale), shift);
}

}  // namespace

Tensor normal_tensors(const Tensor& mean, const Tensor& std, Gen generator) {
  check_std(std);
  return scaled_normal(broadcast_sizes(mean.sizes(), std.sizes(), "normal"), mean, std, generator);
}
Tensor normal_mean(const Tensor& mean, double std, Gen generator) {
  TG_CHECK(std >= 0, Runtime, "normal: normal expects std >= 0.0, but found std {}", std);
  Tensor result = normal_(empty_like(mean), 0, std, generator);
  NoGradGuard guard;
  return add_(result, mean);
}
Tensor normal_std(double mean, const Tensor& std, Gen generator) {
  check_std(std);
  NoGradGuard guard;
  return add_(mul_(normal_(empty_like(std), 0, 1, generator), std), mean);
}
Tensor normal_floats(double mean, double std, IntSpan size, Gen generator, std::optional<DType> dtype,
                     std::optional<Device> device) {
  return normal_(empty(size, dtype, device), mean, std, generator);
}

Tensor dropout(const Tensor& input, double p, bool training, bool inplace) {
  check_probability(p, "dropout");
  if (!training || p == 0 || input.numel() == 0) return input;
  if (p == 1) return inplace ? mul_(input, 0) : mul(input, 0);
  if (!inplace) {
    // The result keeps the order of the dimensions in memory, as of other pointwise operators.
    const DimVector strides = geometry::preserved_strides(input);
    if (input.is_contiguous() || strides == contiguous_strides(input.sizes())) return std::get<0>(_dropout(input, p));
    DimVector order, inverse(strides.size());
    for (size_t d = 0; d < strides.size(); ++d) order.push_back(static_cast<int64_t>(d));
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
    });
    for (size_t d = 0; d < order.size(); ++d) inverse[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
    return permute(std::get<0>(_dropout(permute(input, order), p)), inverse);
  }
  Tensor noise;
  {
    NoGradGuard guard;
    noise = mul_(_bernoulli_float_(empty_like(input), 1 - p), 1 / (1 - p));
  }
  return mul_(input, noise);
}

Tensor dropout1d(const Tensor& input, double p, bool training, bool inplace) {
  TG_CHECK(input.ndim() == 2 || input.ndim() == 3, Runtime,
           "dropout1d: Expected 2D or 3D input, but received a {}D input", input.ndim());
  return unbatched(input, 3, p, training, inplace, "dropout1d");
}
Tensor dropout2d(const Tensor& input, double p, bool training, bool inplace) {
  if (input.ndim() == 3)
    warn(
        "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired: "
        "input "
        "is interpreted as shape (N, C, L), where C is the channel dim. Use dropout1d for that, or unsqueeze(0) an "
        "input "
        "without a batch dim.");
  else if (input.ndim() != 4)
    warn_of_dimensions("dropout2d", input.ndim());
  return feature_dropout_of(input, p, training, inplace, "dropout2d");
}
Tensor dropout3d(const Tensor& input, double p, bool training, bool inplace) {
  if (input.ndim() != 4 && input.ndim() != 5) warn_of_dimensions("dropout3d", input.ndim());
  return unbatched(input, 5, p, training, inplace, "dropout3d");
}
Tensor alpha_dropout(const Tensor& input, double p, bool training, bool inplace) {
  return alpha_dropout_of(input, p, training, inplace, false, "alpha_dropout");
}
Tensor feature_alpha_dropout(const Tensor& input, double p, bool training, bool inplace) {
  return alpha_dropout_of(input, p, training, inplace, true, "feature_alpha_dropout");
}

Tensor rrelu(const Tensor& input, const Scalar& lower, const Scalar& upper, bool training, bool inplace) {
  const double low = lower.to<double>(), high = upper.to<double>();
  TG_CHECK(input.is_floating_point(), Runtime, "rrelu: expected a floating tensor: got {}", input.dtype());
  TG_CHECK(low <= high && std::isfinite(low) && std::isfinite(high), Runtime,
           "rrelu: expected a lower bound no larger than the upper one: got {} and {}", low, high);
  if (!training) {
    const Scalar slope((low + high) / 2);
    return inplace ? leaky_relu_(input, slope) : leaky_relu(input, slope);
  }
  Tensor slopes;
  {
    NoGradGuard guard;
    slopes = uniform_(empty_like(input), low, high);
    masked_fill_(slopes, gt(input, 0), 1);
  }
  return inplace ? mul_(input, slopes) : mul(input, slopes);
}

}  // namespace tapegrad::composite
