// Shapes and checks of resampling.
#include "tapegrad/aten/conv/window_numbers.h"
#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/kernels_upsample.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/upsample/taps.h"

namespace tapegrad {
namespace {

TensorSpec resampled(const Tensor& from, IntSpan sizes) { return {DimVector(sizes), from.dtype(), from.device(), {}}; }

void check_sizes(IntSpan in, IntSpan out) {
  for (size_t d = 2; d < in.size(); ++d)
    TG_CHECK(in[d] > 0 && out[d] > 0, Runtime, "interpolate: input and output sizes must be positive: got {} and {}",
             format_ints(in), format_ints(out));
  conv::check_not_too_large("interpolate", "the input", in.subspan(2));
}

void check_arguments(size_t spatial, std::string_view mode, const std::optional<std::vector<double>>& scales) {
  TG_CHECK(spatial >= 1 && spatial <= 3, Runtime, "interpolate: expected 1 to 3 spatial dimensions: got {}", spatial);
  TG_CHECK(resampling::mode_of(mode), Value, "interpolate: unknown mode '{}'", mode);
  TG_CHECK(!scales || scales->size() == spatial, Value, "interpolate: {} scales for {} spatial dimensions",
           scales->size(), spatial);
}

void check_grid(const Tensor& input, const Tensor& grid, std::string_view mode, std::string_view padding_mode) {
  TG_CHECK(mode == "bilinear" || mode == "nearest" || mode == "bicubic", Value,
           "grid_sample: mode must be 'bilinear', 'nearest' or 'bicubic': got '{}'", mode);
  TG_CHECK(padding_mode == "zeros" || padding_mode == "border" || padding_mode == "reflection", Value,
           "grid_sample: padding_mode must be 'zeros', 'border' or 'reflection': got '{}'", padding_mode);
  TG_CHECK(input.is_floating_point() && input.dtype() == grid.dtype(), Runtime,
           "grid_sample: input and grid must be of one floating dtype: got {} and {}", input.dtype(), grid.dtype());
  int64_t n = input.ndim();
  TG_CHECK((n == 4 || n == 5) && grid.ndim() == n && grid.size(-1) == n - 2 && grid.size(0) == input.size(0), Runtime,
           "grid_sample: expected input (N, C, H, W) with grid (N, h, w, 2), or (N, C, D, H, W) with (N, d, h, w, 3), "
           "but got input with sizes {} and grid with sizes {}",
           format_ints(input.sizes()), format_ints(grid.sizes()));
  TG_CHECK(mode != "bicubic" || n == 4, Runtime, "grid_sample: mode 'bicubic' is for inputs of 4 dimensions: got {}",
           format_ints(input.sizes()));
  for (int64_t d = 2; d < n; ++d)
    TG_CHECK(input.size(d) > 0, Runtime, "grid_sample: the input's spatial sizes must be positive: got {}",
             format_ints(input.sizes()));
}

}  // namespace

TensorSpec upsample_shape(const Tensor& input, IntSpan output_size, std::string_view mode,
                          [[maybe_unused]] bool align_corners, const std::optional<std::vector<double>>& scales) {
  check_arguments(output_size.size(), mode, scales);
  TG_CHECK(static_cast<size_t>(input.ndim()) == output_size.size() + 2, Runtime,
           "interpolate: output_size {} does not fit input of shape {}", format_ints(output_size),
           format_ints(input.sizes()));
  TG_CHECK(input.is_floating_point() || input.dtype() == DType::uint8, NotImplemented,
           "interpolate: not implemented for {}", input.dtype());
  DimVector sizes{input.size(0), input.size(1)};
  for (int64_t s : output_size) sizes.push_back(s);
  check_sizes(input.sizes(), sizes);
  return spec_like_image(input, sizes);
}

TensorSpec upsample_grad_shape(const Tensor& output, IntSpan input_size, std::string_view mode,
                               [[maybe_unused]] bool align_corners, const std::optional<std::vector<double>>& scales) {
  TG_CHECK(output.sizes().size() == input_size.size() && input_size.size() >= 3, Runtime,
           "interpolate: gradient of shape {} for input of shape {}", format_ints(output.sizes()),
           format_ints(input_size));
  check_arguments(input_size.size() - 2, mode, scales);
  check_sizes(input_size, output.sizes());
  return spec_like_image(output, DimVector(input_size));
}

TensorSpec grid_sample_shape(const Tensor& input, const Tensor& grid, std::string_view mode,
                             std::string_view padding_mode, [[maybe_unused]] bool align_corners) {
  check_grid(input, grid, mode, padding_mode);
  DimVector sizes{input.size(0), input.size(1)};
  for (int64_t d = 1; d + 1 < grid.ndim(); ++d) sizes.push_back(grid.size(d));
  return resampled(input, sizes);
}

std::array<TensorSpec, 2> grid_sample_grad_shape(const Tensor& output, const Tensor& input, const Tensor& grid,
                                                 std::string_view mode, std::string_view padding_mode,
                                                 bool align_corners) {
  TG_CHECK(output.sizes() == IntSpan(grid_sample_shape(input, grid, mode, padding_mode, align_corners).sizes), Runtime,
           "grid_sample: gradient of shape {} for input {} and grid {}", format_ints(output.sizes()),
           format_ints(input.sizes()), format_ints(grid.sizes()));
  return {resampled(input, input.sizes()), resampled(grid, grid.sizes())};
}

}  // namespace tapegrad
