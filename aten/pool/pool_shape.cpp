// Shapes and checks of pooling.
#include "tapegrad/aten/conv/window_numbers.h"
#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/kernels_pool.h"
#include "tapegrad/aten/pool/windows.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {
namespace {

void check_input(const char* op, const Tensor& input, size_t spatial) {
  size_t n = static_cast<size_t>(input.ndim());
  TG_CHECK(n == spatial + 1 || n == spatial + 2, Runtime, "{}: input must have {} or {} dimensions: got shape {}", op,
           spatial + 1, spatial + 2, format_ints(input.sizes()));
  TG_CHECK(input.dtype() != DType::bool_ && !input.is_complex(), Runtime, "{}: not implemented for {}", op,
           input.dtype());
  for (size_t d = n == spatial + 2 ? 1 : 0; d < n; ++d)
    TG_CHECK(input.sizes()[d] > 0, Runtime, "{}: only the batch may be empty: got shape {}", op,
             format_ints(input.sizes()));
}

void check_window(const char* op, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation) {
  size_t n = kernel.size();
  TG_CHECK(n >= 1 && n <= 3, Runtime, "{}: kernel_size must have 1 to 3 elements: got {}", op, format_ints(kernel));
  auto check = [&](const char* name, IntSpan v, int64_t least) {
    TG_CHECK(v.size() == n, Runtime, "{}: {} must have {} elements: got {}", op, name, n, format_ints(v));
    conv::check_window_numbers(op, name, v, least);
  };
  check("kernel_size", kernel, 1);
  check("stride", stride, 1);
  check("padding", padding, 0);
  check("dilation", dilation, 1);
  for (size_t i = 0; i < n; ++i)
    TG_CHECK(padding[i] * 2 <= (kernel[i] - 1) * dilation[i] + 1, Runtime,
             "{}: padding must be at most half of the kernel: padding {}, kernel_size {}, dilation {}", op,
             format_ints(padding), format_ints(kernel), format_ints(dilation));
}

DimVector plain_sizes(const char* op, IntSpan input, IntSpan kernel, IntSpan stride, IntSpan padding, IntSpan dilation,
                      bool ceil_mode) {
  DimVector sizes(input);
  for (size_t i = 0; i < kernel.size(); ++i) {
    size_t d = input.size() - kernel.size() + i;
    sizes[d] = pool::pooled_size(input[d], kernel[i], stride[i], padding[i], dilation[i], ceil_mode);
    TG_CHECK(sizes[d] > 0, Runtime, "{}: the window is larger than the padded input: kernel_size {}, input of shape {}",
             op, format_ints(kernel), format_ints(input));
  }
  return sizes;
}

// `output_size` elements of -1 stand for the input's size.
DimVector adaptive_sizes(const char* op, const Tensor& input, IntSpan output_size) {
  size_t spatial = output_size.size();
  TG_CHECK(spatial >= 1 && spatial <= 3, Runtime, "{}: output_size must have 1 to 3 elements: got {}", op,
           format_ints(output_size));
  check_input(op, input, spatial);
  DimVector sizes(input.sizes());
  for (size_t i = 0; i < spatial; ++i) {
    TG_CHECK(output_size[i] >= -1, Runtime, "{}: output_size must not be negative: got {}", op,
             format_ints(output_size));
    if (output_size[i] >= 0) sizes[sizes.size() - spatial + i] = output_size[i];
  }
  return sizes;
}

void check_plane_sizes(const char* op, IntSpan a, IntSpan b, int64_t spatial) {
  bool same = a.size() == b.size() && spatial >= 1 && spatial <= static_cast<int64_t>(a.size());
  for (size_t d = 0; same && d + static_cast<size_t>(spatial) < a.size(); ++d) same = a[d] == b[d];
  TG_CHECK(same, Runtime, "{}: shapes {} and {} do not fit", op, format_ints(a), format_ints(b));
}

}  // namespace

std::array<TensorSpec, 2> max_pool_shape(const Tensor& input, IntSpan kernel_size, IntSpan stride, IntSpan padding,
                                         IntSpan dilation, bool ceil_mode) {
  check_window("max_pool", kernel_size, stride, padding, dilation);
  check_input("max_pool", input, kernel_size.size());
  DimVector sizes = plain_sizes("max_pool", input.sizes(), kernel_size, stride, padding, dilation, ceil_mode);
  const auto spatial = static_cast<int64_t>(kernel_size.size());
  return {spec_like_image(input, sizes, {}, spatial), spec_like_image(input, sizes, DType::int64, spatial)};
}

std::array<TensorSpec, 2> adaptive_max_pool_shape(const Tensor& input, IntSpan output_size) {
  DimVector sizes = adaptive_sizes("adaptive_max_pool", input, output_size);
  const auto spatial = static_cast<int64_t>(output_size.size());
  return {spec_like_image(input, sizes, {}, spatial), spec_like_image(input, sizes, DType::int64, spatial)};
}

TensorSpec avg_pool_shape(const Tensor& input, IntSpan kernel_size, IntSpan stride, IntSpan padding, bool ceil_mode,
                          [[maybe_unused]] bool count_include_pad, std::optional<int64_t> divisor_override) {
  DimVector ones(kernel_size.size(), 1);
  check_window("avg_pool", kernel_size, stride, padding, ones);
  check_input("avg_pool", input, kernel_size.size());
  TG_CHECK(!divisor_override || *divisor_override != 0, Runtime, "avg_pool: divisor_override must not be zero");
  return spec_like_image(input, plain_sizes("avg_pool", input.sizes(), kernel_size, stride, padding, ones, ceil_mode),
                         {}, static_cast<int64_t>(kernel_size.size()));
}

TensorSpec avg_pool_grad_shape(const Tensor& output, IntSpan input_size, IntSpan kernel_size, IntSpan stride,
                               IntSpan padding, bool ceil_mode, [[maybe_unused]] bool count_include_pad,
                               [[maybe_unused]] std::optional<int64_t> divisor_override) {
  DimVector ones(kernel_size.size(), 1);
  check_window("avg_pool", kernel_size, stride, padding, ones);
  DimVector sizes = plain_sizes("avg_pool", input_size, kernel_size, stride, padding, ones, ceil_mode);
  TG_CHECK(sizes == DimVector(output.sizes()), Runtime, "avg_pool: gradient of shape {} where {} is expected",
           format_ints(output.sizes()), format_ints(sizes));
  return spec_like_image(output, DimVector(input_size), {}, static_cast<int64_t>(kernel_size.size()));
}

TensorSpec adaptive_avg_pool_shape(const Tensor& input, IntSpan output_size) {
  return spec_like_image(input, adaptive_sizes("adaptive_avg_pool", input, output_size), {},
                         static_cast<int64_t>(output_size.size()));
}

TensorSpec adaptive_avg_pool_grad_shape(const Tensor& output, IntSpan input_size, int64_t spatial) {
  check_plane_sizes("adaptive_avg_pool", output.sizes(), input_size, spatial);
  return spec_like_image(output, DimVector(input_size), {}, spatial);
}

TensorSpec plane_gather_shape(const Tensor& input, const Tensor& indices, int64_t spatial) {
  check_plane_sizes("plane_gather", input.sizes(), indices.sizes(), spatial);
  TG_CHECK(indices.dtype() == DType::int64, Type, "plane_gather: indices must be int64: got {}", indices.dtype());
  return {DimVector(indices.sizes()), input.dtype(), input.device(), {}};
}

TensorSpec plane_scatter_shape(const Tensor& output, const Tensor& indices, IntSpan input_size, int64_t spatial,
                               bool accumulate, IntSpan, IntSpan, IntSpan, IntSpan) {
  const char* op = accumulate ? "max_pool" : "max_unpool";
  TG_CHECK(output.sizes() == indices.sizes(), Runtime, "{}: indices of shape {} for values of shape {}", op,
           format_ints(indices.sizes()), format_ints(output.sizes()));
  TG_CHECK(indices.dtype() == DType::int64, Type, "{}: indices must be int64: got {}", op, indices.dtype());
  check_plane_sizes(op, output.sizes(), input_size, spatial);
  for (int64_t s : input_size)
    TG_CHECK(s >= 0, Runtime, "{}: the result would have a negative size: {}", op, format_ints(input_size));
  return spec_like_image(indices, DimVector(input_size), output.dtype(), spatial);
}

}  // namespace tapegrad
