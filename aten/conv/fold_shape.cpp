// Checks and results of fold and unfold, and the public forms with and without a batch dimension.
#include "tapegrad/aten/conv/fold.h"

#include "tapegrad/aten/conv/window_numbers.h"
#include "tapegrad/aten/functions_fold.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_fold.h"

namespace tapegrad {
namespace conv {

FoldSizes fold_sizes(const char* op, IntSpan image, IntSpan kernel_size, IntSpan dilation, IntSpan padding,
                     IntSpan stride) {
  FoldSizes r;
  const auto check = [&](IntSpan values, const char* name, int64_t least) {
    for (int64_t v : values)
      TG_CHECK(v >= least, Runtime, "{}: {} should be {}, but got {}", op, name,
               least > 0 ? "greater than zero" : "non-negative", format_ints(values));
    check_not_too_large(op, name, values);
  };
  check(kernel_size, "kernel_size", 1);
  check(dilation, "dilation", 1);
  check(padding, "padding", 0);
  check(stride, "stride", 1);
  for (size_t d = 0; d < 2; ++d) {
    const int64_t span = image[d] + 2 * padding[d] - dilation[d] * (kernel_size[d] - 1) - 1;
    r.blocks[d] = span < 0 ? 0 : span / stride[d] + 1;
  }
  TG_CHECK(r.blocks[0] > 0 && r.blocks[1] > 0, Runtime,
           "{}: images of {} with kernel_size {}, dilation {}, padding {} and stride {} have {} by {} patches", op,
           format_ints(image), format_ints(kernel_size), format_ints(dilation), format_ints(padding),
           format_ints(stride), r.blocks[0], r.blocks[1]);
  return r;
}

}  // namespace conv

namespace {

void check_dtype(const char* op, const Tensor& input) {
  TG_CHECK(!is_integral(input.dtype()), Runtime, "{}: expected a floating, complex or bool tensor: got {}", op,
           input.dtype());
}

}  // namespace

TensorSpec im2col_shape(const Tensor& input, IntSpan kernel_size, IntSpan dilation, IntSpan padding, IntSpan stride) {
  check_dtype("unfold", input);
  TG_CHECK(input.ndim() == 4 && input.size(1) > 0 && input.size(2) > 0 && input.size(3) > 0, Runtime,
           "unfold: expected images (N, C, H, W) or (C, H, W) with elements: got {}", format_ints(input.sizes()));
  const IntSpan image(input.sizes().data() + 2, 2);
  const auto sizes = conv::fold_sizes("unfold", image, kernel_size, dilation, padding, stride);
  DimVector result{input.size(0), input.size(1) * kernel_size[0] * kernel_size[1], sizes.blocks[0] * sizes.blocks[1]};
  checked_numel(result, "unfold");
  return {result, input.dtype(), input.device(), {}};
}

TensorSpec col2im_shape(const Tensor& input, IntSpan output_size, IntSpan kernel_size, IntSpan dilation,
                        IntSpan padding, IntSpan stride) {
  check_dtype("fold", input);
  for (int64_t v : output_size)
    TG_CHECK(v > 0, Runtime, "fold: output_size should be greater than zero, but got {}", format_ints(output_size));
  conv::check_not_too_large("fold", "output_size", output_size);
  const auto sizes = conv::fold_sizes("fold", output_size, kernel_size, dilation, padding, stride);
  TG_CHECK(input.ndim() == 3, Runtime, "fold: expected columns (N, C kernel, L) or (C kernel, L): got {}",
           format_ints(input.sizes()));
  const int64_t area = kernel_size[0] * kernel_size[1], length = sizes.blocks[0] * sizes.blocks[1];
  TG_CHECK(input.size(1) > 0 && input.size(1) % area == 0, Runtime,
           "fold: expected size of input's dimension 1 to be divisible by the product of kernel_size {}: got {}",
           format_ints(kernel_size), input.size(1));
  TG_CHECK(input.size(2) == length, Runtime,
           "fold: images of {} with kernel_size {}, dilation {}, padding {} and stride {} have {} * {} = {} patches: "
           "got {} columns",
           format_ints(output_size), format_ints(kernel_size), format_ints(dilation), format_ints(padding),
           format_ints(stride), sizes.blocks[0], sizes.blocks[1], length, input.size(2));
  DimVector result{input.size(0), input.size(1) / area, output_size[0], output_size[1]};
  checked_numel(result, "fold");
  return {result, input.dtype(), input.device(), {}};
}

namespace composite {

Tensor unfold_image(const Tensor& input, IntSpan kernel_size, IntSpan dilation, IntSpan padding, IntSpan stride) {
  TG_CHECK(input.ndim() == 3 || input.ndim() == 4, Runtime, "unfold: expected images (N, C, H, W) or (C, H, W): got {}",
           format_ints(input.sizes()));
  if (input.ndim() == 4) return _im2col(input, kernel_size, dilation, padding, stride);
  return squeeze(_im2col(unsqueeze(input, 0), kernel_size, dilation, padding, stride), IntSpan({0}));
}

Tensor fold(const Tensor& input, IntSpan output_size, IntSpan kernel_size, IntSpan dilation, IntSpan padding,
            IntSpan stride) {
  TG_CHECK(input.ndim() == 2 || input.ndim() == 3, Runtime,
           "fold: expected columns (N, C kernel, L) or (C kernel, L): got {}", format_ints(input.sizes()));
  if (input.ndim() == 3) return _col2im(input, output_size, kernel_size, dilation, padding, stride);
  return squeeze(_col2im(unsqueeze(input, 0), output_size, kernel_size, dilation, padding, stride), IntSpan({0}));
}

}  // namespace composite
}  // namespace tapegrad
