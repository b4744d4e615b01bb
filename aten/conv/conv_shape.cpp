// Shapes and checks of `_conv` and of its two gradients, which are operators, too.
#include "tapegrad/aten/conv/geometry.h"
#include "tapegrad/aten/conv/window_numbers.h"
#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/kernels_conv.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/tensor/checked_int.h"

namespace tapegrad {
namespace {

void check_parameters(const char* op, int64_t spatial, IntSpan stride, IntSpan padding, IntSpan dilation,
                      int64_t groups) {
  auto check = [&](IntSpan values, const char* name, int64_t least) {
    TG_CHECK(static_cast<int64_t>(values.size()) == spatial, Runtime, "{}: {} must have {} elements: got {}", op, name,
             spatial, format_ints(values));
    conv::check_window_numbers(op, name, values, least);
  };
  check(stride, "stride", 1);
  check(padding, "padding", 0);
  check(dilation, "dilation", 1);
  TG_CHECK(groups > 0, Runtime, "{}: groups must be positive: got {}", op, groups);
}

void check_pair(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b) {
  TG_CHECK(a.dtype() == b.dtype(), Runtime, "{}: {} of dtype {} and {} of dtype {}", op, name_a, a.dtype(), name_b,
           b.dtype());
  TG_CHECK(a.dtype() != DType::bool_, Runtime, "{}: not implemented for bool", op);
  TG_CHECK(a.device() == b.device(), Runtime, "{}: {} on {} and {} on {}", op, name_a, a.device(), name_b, b.device());
}

void check_ndim(const char* op, const char* name, IntSpan sizes, size_t ndim) {
  TG_CHECK(sizes.size() == ndim && ndim >= 3 && ndim <= 5, Runtime,
           "{}: {} must have 3, 4 or 5 dimensions, as many as the others: got shape {}", op, name, format_ints(sizes));
}

void check_channels(const char* op, IntSpan input, IntSpan weight, int64_t groups) {
  TG_CHECK(weight[0] % groups == 0 && weight[0] > 0, Runtime,
           "{}: {} output channels cannot be divided into {} groups: weight of shape {}", op, weight[0], groups,
           format_ints(weight));
  const CheckedInt channels = CheckedInt(weight[1]) * groups;
  TG_CHECK(channels.fits(), Runtime, "{}: {} groups of {} channels are too many", op, groups, weight[1]);
  TG_CHECK(input[1] == channels.value(), Runtime,
           "{}: weight of shape {} and {} groups expect {} input channels: got {} in shape {}", op, format_ints(weight),
           groups, channels.value(), input[1], format_ints(input));
  for (size_t i = 2; i < weight.size(); ++i)
    TG_CHECK(weight[i] > 0, Runtime, "{}: kernel sizes must be positive: weight of shape {}", op, format_ints(weight));
}

DimVector output_sizes(const char* op, IntSpan input, IntSpan weight, IntSpan stride, IntSpan padding, IntSpan dilation,
                       bool may_be_empty = false) {
  DimVector sizes{input[0], weight[0]};
  for (size_t d = 0; d < stride.size(); ++d) {
    const CheckedInt reach_of = CheckedInt(dilation[d]) * (weight[d + 2] - 1) + 1;
    const CheckedInt padded_to = CheckedInt(2) * padding[d] + input[d + 2];
    TG_CHECK(reach_of.fits() && padded_to.fits(), Runtime, "{}: sizes do not fit into 63 bits: padding {}, dilation {}",
             op, format_ints(padding), format_ints(dilation));
    const int64_t reach = reach_of.value(), padded = padded_to.value();
    TG_CHECK(padded >= reach || may_be_empty, Runtime,
             "{}: the kernel is larger than the padded input: {} and {} in dimension {}: input of shape {}, "
             "weight of shape {}",
             op, reach, padded, d + 2, format_ints(input), format_ints(weight));
    sizes.push_back(padded >= reach ? (padded - reach) / stride[d] + 1 : 0);
  }
  return sizes;
}

// Whether a convolution from `input` could have written `output`, which may be empty.
void check_output(const char* op, IntSpan input, IntSpan weight, IntSpan output, IntSpan stride, IntSpan padding,
                  IntSpan dilation) {
  TG_CHECK(output[0] == input[0] && output[1] == weight[0], Runtime,
           "{}: output of shape {} does not fit input of shape {} and weight of shape {}", op, format_ints(output),
           format_ints(input), format_ints(weight));
  DimVector most = output_sizes(op, input, weight, stride, padding, dilation, true);
  for (size_t d = 2; d < output.size(); ++d)
    TG_CHECK(output[d] <= most[d], Runtime, "{}: output of shape {} is larger than {}, which input of shape {} gives",
             op, format_ints(output), format_ints(most), format_ints(input));
}

// A result in the layout of its operands: channels innermost where either has them so; on CUDA, where the first has.
// Volumes of float64 are contiguous, as PyTorch's.
TensorSpec in_layout_of(const Tensor& from, const Tensor& other, DimVector sizes) {
  DimVector strides;
  const bool either = has_channels_last(from) || has_channels_last(other);
  if (from.is_cuda() ? conv::channels_last(from) : either && (from.ndim() < 5 || can_go_along_channels(from.dtype())))
    strides = channels_last_strides(sizes);
  return {std::move(sizes), from.dtype(), from.device(), std::move(strides)};
}

}  // namespace

TensorSpec conv_shape(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan padding,
                      IntSpan dilation, int64_t groups) {
  const char* op = "conv";
  size_t ndim = static_cast<size_t>(weight.ndim());
  check_ndim(op, "weight", weight.sizes(), ndim);
  check_ndim(op, "input", input.sizes(), ndim);
  check_pair(op, "input", input, "weight", weight);
  check_parameters(op, weight.ndim() - 2, stride, padding, dilation, groups);
  check_channels(op, input.sizes(), weight.sizes(), groups);
  if (bias.defined()) {
    check_pair(op, "input", input, "bias", bias);
    TG_CHECK(bias.ndim() == 1 && bias.size(0) == weight.size(0), Runtime,
             "conv: bias of shape {} does not fit weight of shape {}\nexpected ({})", format_ints(bias.sizes()),
             format_ints(weight.sizes()), weight.size(0));
  }
  return in_layout_of(input, weight, output_sizes(op, input.sizes(), weight.sizes(), stride, padding, dilation));
}

TensorSpec conv_grad_input_shape(const Tensor& output, const Tensor& weight, IntSpan input_size, IntSpan stride,
                                 IntSpan padding, IntSpan dilation, int64_t groups) {
  const char* op = "conv_transpose";
  size_t ndim = static_cast<size_t>(weight.ndim());
  check_ndim(op, "weight", weight.sizes(), ndim);
  check_ndim(op, "input", output.sizes(), ndim);
  check_ndim(op, "the result", input_size, ndim);
  check_pair(op, "input", output, "weight", weight);
  check_parameters(op, weight.ndim() - 2, stride, padding, dilation, groups);
  check_channels(op, input_size, weight.sizes(), groups);
  check_output(op, input_size, weight.sizes(), output.sizes(), stride, padding, dilation);
  return in_layout_of(output, weight, DimVector(input_size));
}

TensorSpec conv_grad_weight_shape(const Tensor& output, const Tensor& input, IntSpan weight_size, IntSpan stride,
                                  IntSpan padding, IntSpan dilation, int64_t groups) {
  const char* op = "conv_grad_weight";
  size_t ndim = weight_size.size();
  check_ndim(op, "output", output.sizes(), ndim);
  check_ndim(op, "input", input.sizes(), ndim);
  check_pair(op, "output", output, "input", input);
  check_parameters(op, static_cast<int64_t>(ndim) - 2, stride, padding, dilation, groups);
  check_channels(op, input.sizes(), weight_size, groups);
  check_output(op, input.sizes(), weight_size, output.sizes(), stride, padding, dilation);
  if (input.is_cuda()) return {DimVector(weight_size), input.dtype(), input.device(), {}};
  return in_layout_of(input, output, DimVector(weight_size));
}

}  // namespace tapegrad
