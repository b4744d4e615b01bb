// The public normalisations in terms of the two kernels: sums over the batch, and sums over groups of one sample.
#include <limits>

#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_norm.h"
#include "tapegrad/aten/functions_pad.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_pool.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_norm.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::composite {
namespace {

void check_running(const char* op, const Tensor& mean, const Tensor& var, int64_t channels) {
  TG_CHECK(mean.defined() == var.defined(), Runtime, "{}: running_mean and running_var go together: one is missing",
           op);
  if (!mean.defined()) return;
  TG_CHECK(mean.numel() == channels && var.numel() == channels, Runtime,
           "{}: running_mean has {} elements and running_var {}: expected {}", op, mean.numel(), var.numel(), channels);
}

// running = (1 - momentum) * running + momentum * now.
void move_running(const Tensor& running, const Tensor& now, double momentum) {
  NoGradGuard guard;
  Tensor target = now.dtype() == running.dtype() ? now : to(now, running.dtype());
  lerp_(running, reshape(target, running.sizes()), momentum);
}

int64_t normalised_numel(const char* op, const Tensor& input, IntSpan shape) {
  TG_CHECK(!shape.empty(), Runtime, "{}: normalized_shape must name at least one dimension", op);
  bool fits = shape.size() <= input.sizes().size();
  int64_t n = 1;
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = input.sizes()[input.sizes().size() - shape.size() + i] == shape[i];
    if (fits) n *= shape[i];
  }
  TG_CHECK(fits, Runtime, "{}: input of shape {} does not end with normalized_shape {}", op, format_ints(input.sizes()),
           format_ints(shape));
  return n;
}

int64_t leading_numel(const Tensor& input, size_t dropped) {
  int64_t n = 1;
  for (size_t i = 0; i + dropped < input.sizes().size(); ++i) n *= input.sizes()[i];
  return n;
}

// The kernel wants one number per channel.
Tensor flat(const Tensor& t) { return t.defined() && t.ndim() != 1 ? reshape(t, {t.numel()}) : t; }

void check_affine(const char* op, const char* name, const Tensor& t, IntSpan shape) {
  TG_CHECK(!t.defined() || t.sizes() == shape, Runtime, "{}: {} of shape {} for normalized_shape {}", op, name,
           t.defined() ? format_ints(t.sizes()) : std::string(), format_ints(shape));
}

}  // namespace

Tensor batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps) {
  if (input.ndim() == 1 && input.numel() == 0) return mul(input, 1);  // PyTorch lets a batch without anything pass
  TG_CHECK(input.ndim() >= 2, Runtime, "batch_norm: input must have at least 2 dimensions: got shape {}",
           format_ints(input.sizes()));
  TG_CHECK(!(training ? eps <= 0 : eps < 0), Value, "batch_norm: eps must {}: got {}",
           training ? "be positive in training" : "not be negative", eps);
  check_running("batch_norm", running_mean, running_var, input.size(1));
  if (!training) {
    TG_CHECK(running_mean.defined(), Runtime,
             "batch_norm: running_mean and running_var are needed where training is False");
    // Copies where the tape may keep them: a later training pass moves the running ones.
    bool recorded = grad_enabled() && (input.requires_grad() || (weight.defined() && weight.requires_grad()));
    return _batch_norm_eval(input, weight, bias, recorded ? clone(running_mean) : running_mean,
                            recorded ? clone(running_var) : running_var, eps);
  }
  auto [output, mean, invstd, var] = _batch_norm_train(input, weight, bias, eps);
  if (running_mean.defined() && input.numel() > 0) {
    move_running(running_mean, mean, momentum);
    move_running(running_var, var, momentum);
  }
  return output;
}

Tensor instance_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, bool use_input_stats, double momentum, double eps) {
  TG_CHECK(input.ndim() >= 3, Runtime, "instance_norm: input must have at least 3 dimensions: got shape {}",
           format_ints(input.sizes()));
  int64_t n = input.size(0), c = input.size(1);
  check_running("instance_norm", running_mean, running_var, c);
  const Tensor planes = has_channels_last(input) ? contiguous(input) : input;  // the result is contiguous
  if (!use_input_stats)
    return tapegrad::batch_norm(planes, running_mean, running_var, weight, bias, false, momentum, eps);
  int64_t spatial = n * c == 0 ? 0 : input.numel() / (n * c);
  TG_CHECK(spatial != 1, Value,
           "instance_norm: training needs more than one element per channel: got input of shape {}",
           format_ints(input.sizes()));
  auto [output, mean, rstd] = _group_norm(planes, n, c, c, weight, bias, eps, true);
  if (running_mean.defined() && input.numel() > 0) {
    NoGradGuard guard;
    Tensor var = mul(sub(pow(rstd, -2), eps), static_cast<double>(spatial) / static_cast<double>(spatial - 1));
    move_running(running_mean, tapegrad::mean(mean, IntSpan{0}), momentum);
    move_running(running_var, tapegrad::mean(var, IntSpan{0}), momentum);
  }
  return output;
}

Tensor layer_norm(const Tensor& input, IntSpan normalized_shape, const Tensor& weight, const Tensor& bias, double eps) {
  int64_t n = normalised_numel("layer_norm", input, normalized_shape);
  check_affine("layer_norm", "weight", weight, normalized_shape);
  check_affine("layer_norm", "bias", bias, normalized_shape);
  return std::get<0>(
      _group_norm(input, leading_numel(input, normalized_shape.size()), n, 1, flat(weight), flat(bias), eps, true));
}

Tensor rms_norm(const Tensor& input, IntSpan normalized_shape, const Tensor& weight, std::optional<double> eps) {
  int64_t n = normalised_numel("rms_norm", input, normalized_shape);
  check_affine("rms_norm", "weight", weight, normalized_shape);
  // The default is the resolution of the type that is computed in.
  double least = to_real(compute_dtype(input.dtype())) == DType::float64 ? std::numeric_limits<double>::epsilon()
                                                                         : std::numeric_limits<float>::epsilon();
  if (input.is_complex()) {
    DimVector dims;
    for (size_t i = 0; i < normalized_shape.size(); ++i) dims.push_back(-1 - static_cast<int64_t>(i));
    const Tensor power = mean(square(input), IntSpan(dims), true);  // as PyTorch: the square, not the magnitude's
    const Tensor result = mul(input, rsqrt(add(power, eps.value_or(least))));
    return weight.defined() ? mul(result, weight) : result;
  }
  const bool fits = !weight.defined() || weight.dtype() == input.dtype() ||
                    (is_half(input.dtype()) && weight.dtype() == DType::float32);
  const Tensor scale = flat(fits ? weight : to(weight, input.dtype()));
  return std::get<0>(
      _group_norm(input, leading_numel(input, normalized_shape.size()), n, 1, scale, {}, eps.value_or(least), false));
}

Tensor group_norm(const Tensor& input, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  TG_CHECK(input.ndim() >= 2, Runtime, "group_norm: input must have at least 2 dimensions: got shape {}",
           format_ints(input.sizes()));
  TG_CHECK(num_groups > 0 && input.size(1) % num_groups == 0, Runtime,
           "group_norm: {} channels cannot be divided into {} groups: input of shape {}", input.size(1), num_groups,
           format_ints(input.sizes()));
  return std::get<0>(_group_norm(input, input.size(0), input.size(1), num_groups, weight, bias, eps, true));
}

Tensor local_response_norm(const Tensor& input, int64_t size, double alpha, double beta, double k) {
  int64_t d = input.ndim();
  TG_CHECK(d >= 3, Value, "local_response_norm: input must have at least 3 dimensions: got shape {}",
           format_ints(input.sizes()));
  TG_CHECK(size >= 1, Value, "local_response_norm: size must be positive: got {}", size);
  if (input.numel() == 0) return clone(input);
  int64_t n = input.size(0), c = input.size(1), rest = input.numel() / (n * c);
  // A mean over neighbouring channels is a pooling over the first dimension of (channels, rest).
  Tensor squares = reshape(mul(input, input), {n, 1, c, rest});
  squares = constant_pad_nd(squares, {0, 0, size / 2, (size - 1) / 2}, 0);
  Tensor means = reshape(_avg_pool(squares, {size, 1}, {1, 1}, {0, 0}, false, true, {}), input.sizes());
  return div(input, pow(add(mul(means, alpha), k), beta));
}

Tensor normalize(const Tensor& input, double p, IntSpan dim, double eps) {
  Tensor length = clamp_min(norm(input, Scalar(p), dim, true), eps);
  return div(input, length);
}

}  // namespace tapegrad::composite
