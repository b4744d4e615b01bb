// conv1d, conv2d, conv3d and the transposed ones in terms of `_conv` and `_conv_grad_input`: unbatched
// inputs, 'same' and 'valid', output_padding, the bias of transposed convolutions.
#include "tapegrad/aten/functions_conv.h"
#include "tapegrad/aten/functions_pad.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_conv.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/tensor/checked_int.h"

namespace tapegrad::composite {
namespace {

DimVector repeated(IntSpan values, size_t n) {
  if (values.size() == 1) return DimVector(n, values[0]);
  return DimVector(values);
}

void check_input(const char* op, const Tensor& input, const Tensor& weight, size_t spatial) {
  TG_CHECK(weight.ndim() == static_cast<int>(spatial) + 2, Runtime, "{}: weight must have {} dimensions: got shape {}",
           op, spatial + 2, format_ints(weight.sizes()));
  TG_CHECK(input.ndim() == static_cast<int>(spatial) + 1 || input.ndim() == static_cast<int>(spatial) + 2, Runtime,
           "{}: input must have {} or {} dimensions: got shape {}", op, spatial + 1, spatial + 2,
           format_ints(input.sizes()));
}

Tensor batched(const Tensor& input, size_t spatial) {
  return input.ndim() == static_cast<int>(spatial) + 1 ? unsqueeze(input, 0) : input;
}

Tensor convolve(const char* op, size_t spatial, const Tensor& input, const Tensor& weight, const Tensor& bias,
                IntSpan stride, IntSpan padding, IntSpan dilation, int64_t groups) {
  check_input(op, input, weight, spatial);
  Tensor y = _conv(batched(input, spatial), weight, bias, stride, padding, dilation, groups);
  return input.ndim() == static_cast<int>(spatial) + 1 ? squeeze(y, IntSpan{0}) : y;
}

Tensor convolve(const char* op, size_t spatial, const Tensor& input, const Tensor& weight, const Tensor& bias,
                IntSpan stride, std::string_view padding, IntSpan dilation, int64_t groups) {
  check_input(op, input, weight, spatial);
  DimVector zero(spatial, 0);
  if (padding == "valid") return convolve(op, spatial, input, weight, bias, stride, zero, dilation, groups);
  TG_CHECK(padding == "same", Runtime, "{}: padding must be 'same', 'valid' or numbers: got '{}'", op, padding);
  DimVector strides = repeated(stride, spatial), dilations = repeated(dilation, spatial), both(spatial);
  DimVector uneven(2 * spatial, 0);  // one element more at the end: padded there first, as PyTorch does
  for (size_t d = 0; d < spatial; ++d) {
    TG_CHECK(strides[d] == 1, Runtime, "{}: padding='same' needs stride 1: got {}", op, format_ints(strides));
    const CheckedInt reach = CheckedInt(dilations[d]) * (weight.size(static_cast<int64_t>(d) + 2) - 1);
    TG_CHECK(reach.fits(), Runtime, "{}: the kernel reaches too far: dilation {}", op, format_ints(dilation));
    const int64_t total = reach.value();
    both[d] = total / 2;
    uneven[2 * (spatial - 1 - d) + 1] = total % 2;
  }
  const bool symmetric = std::ranges::count(uneven, 0) == static_cast<std::ptrdiff_t>(uneven.size());
  const Tensor padded = symmetric ? input : constant_pad_nd(input, uneven, 0);
  return convolve(op, spatial, padded, weight, bias, stride, both, dilation, groups);
}

Tensor convolve_transposed(const char* op, size_t spatial, const Tensor& input, const Tensor& weight,
                           const Tensor& bias, IntSpan stride, IntSpan padding, IntSpan output_padding, int64_t groups,
                           IntSpan dilation) {
  check_input(op, input, weight, spatial);
  TG_CHECK(groups > 0, Runtime, "{}: groups must be positive: got {}", op, groups);
  Tensor x = batched(input, spatial);
  TG_CHECK(x.size(1) == weight.size(0), Runtime, "{}: weight of shape {} expects {} input channels: got {} in shape {}",
           op, format_ints(weight.sizes()), weight.size(0), x.size(1), format_ints(input.sizes()));
  const CheckedInt channels = CheckedInt(weight.size(1)) * groups;
  TG_CHECK(channels.fits(), Runtime, "{}: {} groups of {} channels are too many", op, groups, weight.size(1));
  TG_CHECK(!bias.defined() || (bias.ndim() == 1 && bias.size(0) == channels.value()), Runtime,
           "{}: bias of shape {} does not fit weight of shape {} and {} groups", op,
           bias.defined() ? format_ints(bias.sizes()) : std::string(), format_ints(weight.sizes()), groups);
  DimVector sizes{x.size(0), channels.value()};
  for (size_t d = 0; d < spatial; ++d) {
    TG_CHECK(stride[d] > 0 && dilation[d] > 0 && padding[d] >= 0 && output_padding[d] >= 0, Runtime,
             "{}: stride and dilation must be positive, paddings not negative: got {}, {}, {}, {}", op,
             format_ints(stride), format_ints(dilation), format_ints(padding), format_ints(output_padding));
    TG_CHECK(output_padding[d] < std::max(stride[d], dilation[d]), Runtime,
             "{}: output padding must be smaller than stride or dilation: got {} with stride {} and dilation {}", op,
             format_ints(output_padding), format_ints(stride), format_ints(dilation));
    int64_t n = x.size(static_cast<int64_t>(d) + 2);
    const CheckedInt size = CheckedInt(n - 1) * stride[d] - CheckedInt(2) * padding[d] +
                            CheckedInt(dilation[d]) * (weight.size(static_cast<int64_t>(d) + 2) - 1) +
                            output_padding[d] + 1;
    TG_CHECK(size.fits(), Runtime, "{}: the result is too large: stride {}, padding {}, dilation {}, output padding {}",
             op, format_ints(stride), format_ints(padding), format_ints(dilation), format_ints(output_padding));
    TG_CHECK(size.value() >= 0, Runtime, "{}: the result would have size {} in dimension {}: input of shape {}", op,
             size.value(), d + 2, format_ints(input.sizes()));
    sizes.push_back(size.value());
  }
  Tensor y = _conv_grad_input(x, weight, sizes, stride, padding, dilation, groups);
  if (bias.defined()) {
    DimVector shape(spatial + 1, 1);
    shape[0] = bias.size(0);
    y = add(y, reshape(bias, shape));
  }
  return input.ndim() == static_cast<int>(spatial) + 1 ? squeeze(y, IntSpan{0}) : y;
}

}  // namespace

#define TG_CONV(N)                                                                                                  \
  Tensor conv##N##d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan padding, \
                    IntSpan dilation, int64_t groups) {                                                             \
    return convolve("conv" #N "d", N, input, weight, bias, stride, padding, dilation, groups);                      \
  }                                                                                                                 \
  Tensor conv##N##d_named(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride,            \
                          std::string_view padding, IntSpan dilation, int64_t groups) {                             \
    return convolve("conv" #N "d", N, input, weight, bias, stride, padding, dilation, groups);                      \
  }                                                                                                                 \
  Tensor conv_transpose##N##d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride,        \
                              IntSpan padding, IntSpan output_padding, int64_t groups, IntSpan dilation) {          \
    return convolve_transposed("conv_transpose" #N "d", N, input, weight, bias, stride, padding, output_padding,    \
                               groups, dilation);                                                                   \
  }
TG_CONV(1)
TG_CONV(2)
TG_CONV(3)
#undef TG_CONV

}  // namespace tapegrad::composite
