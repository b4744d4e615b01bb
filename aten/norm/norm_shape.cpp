// Shapes and checks of the normalisations' kernels.
#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/kernels_norm.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {
namespace {

void check_floating(const char* op, const Tensor& t) {
  TG_CHECK(t.is_floating_point(), Runtime, "{}: input must be of a floating dtype: got {}", op, t.dtype());
}

// One number per channel, of the input's dtype, or float32 beside a 16-bit input.
void check_channels(const char* op, const char* name, const Tensor& t, const Tensor& input, int64_t channels) {
  if (!t.defined()) return;
  TG_CHECK(t.numel() == channels, Runtime, "{}: {} of shape {} for {} channels", op, name, format_ints(t.sizes()),
           channels);
  bool fits = t.dtype() == input.dtype() || (is_half(input.dtype()) && t.dtype() == DType::float32);
  TG_CHECK(fits, Runtime, "{}: {} of dtype {} and input of dtype {}", op, name, t.dtype(), input.dtype());
}

DType stats_dtype(const Tensor& input) { return compute_dtype(input.dtype()); }

TensorSpec channel_spec(const Tensor& input, int64_t channels) {
  return {{channels}, stats_dtype(input), input.device(), {}};
}

// The gradient of a parameter: its dtype is that of the weight, or the input's if there is no weight.
TensorSpec parameter_spec(const Tensor& input, const Tensor& weight, int64_t channels) {
  return {{channels}, weight.defined() ? weight.dtype() : input.dtype(), input.device(), {}};
}

// The result of batch normalisation, and its gradient.
TensorSpec normalised(const Tensor& input) { return spec_like_image(input, DimVector(input.sizes())); }

// Groups of channels keep the layout of images, layers do not.
TensorSpec grouped(const Tensor& input, int64_t samples, int64_t channels) {
  const bool images = input.ndim() > 1 && samples == input.size(0) && channels == input.size(1);
  if (images) return normalised(input);
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}

void check_batch_input(const Tensor& input) {
  check_floating("batch_norm", input);
  TG_CHECK(input.ndim() >= 2, Runtime, "batch_norm: input must have at least 2 dimensions: got shape {}",
           format_ints(input.sizes()));
}

}  // namespace

std::array<TensorSpec, 4> batch_norm_train_shape(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                                 [[maybe_unused]] double eps) {
  check_batch_input(input);
  int64_t c = input.size(1);
  check_channels("batch_norm", "weight", weight, input, c);
  check_channels("batch_norm", "bias", bias, input, c);
  TG_CHECK(c == 0 || input.numel() != c, Value,
           "batch_norm: Expected more than 1 value per channel when training, got input of shape {}",
           format_ints(input.sizes()));
  return {normalised(input), channel_spec(input, c), channel_spec(input, c), channel_spec(input, c)};
}

std::array<TensorSpec, 3> batch_norm_train_grad_shape(const Tensor& output, const Tensor& input, const Tensor& weight,
                                                      const Tensor& mean, const Tensor& invstd,
                                                      [[maybe_unused]] double eps) {
  check_batch_input(input);
  int64_t c = input.size(1);
  TG_CHECK(output.sizes() == input.sizes() && mean.numel() == c && invstd.numel() == c, Runtime,
           "batch_norm: gradient of shape {} for input of shape {}", format_ints(output.sizes()),
           format_ints(input.sizes()));
  return {normalised(input), parameter_spec(input, weight, c), parameter_spec(input, weight, c)};
}

TensorSpec batch_norm_eval_shape(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                                 const Tensor& var, [[maybe_unused]] double eps) {
  check_batch_input(input);
  int64_t c = input.size(1);
  check_channels("batch_norm", "weight", weight, input, c);
  check_channels("batch_norm", "bias", bias, input, c);
  check_channels("batch_norm", "running_mean", mean, input, c);
  check_channels("batch_norm", "running_var", var, input, c);
  return normalised(input);
}

std::array<TensorSpec, 3> group_norm_shape(const Tensor& input, int64_t samples, int64_t channels, int64_t groups,
                                           const Tensor& weight, const Tensor& bias, [[maybe_unused]] double eps,
                                           [[maybe_unused]] bool center) {
  check_floating("group_norm", input);
  TG_CHECK(samples >= 0 && channels >= 0 && groups > 0 && channels % groups == 0, Runtime,
           "group_norm: {} channels cannot be divided into {} groups", channels, groups);
  int64_t rest = samples * channels;
  TG_CHECK(rest == 0 ? input.numel() == 0 : input.numel() % rest == 0, Runtime,
           "group_norm: input of shape {} is not {} samples of {} channels", format_ints(input.sizes()), samples,
           channels);
  check_channels("group_norm", "weight", weight, input, channels);
  check_channels("group_norm", "bias", bias, input, channels);
  TensorSpec stats{{samples, groups}, stats_dtype(input), input.device(), {}};
  return {grouped(input, samples, channels), stats, stats};
}

std::array<TensorSpec, 3> group_norm_grad_shape(const Tensor& output, const Tensor& input, int64_t samples,
                                                int64_t channels, int64_t groups, const Tensor& weight,
                                                const Tensor& mean, const Tensor& rstd, [[maybe_unused]] double eps,
                                                [[maybe_unused]] bool center) {
  TG_CHECK(output.sizes() == input.sizes() && mean.numel() == samples * groups && rstd.numel() == samples * groups,
           Runtime, "group_norm: gradient of shape {} for input of shape {}", format_ints(output.sizes()),
           format_ints(input.sizes()));
  return {grouped(input, samples, channels), parameter_spec(input, weight, channels),
          parameter_spec(input, weight, channels)};
}

}  // namespace tapegrad
