#include "tapegrad/aten/kernels_view.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/c10/tensor/checked_int.h"

namespace tapegrad {

TensorSpec embed_view_shape(const Tensor& grad_view, IntSpan sizes, IntSpan view_size, IntSpan view_stride,
                            int64_t offset) {
  TG_CHECK(grad_view.sizes() == view_size && view_size.size() == view_stride.size(), Runtime,
           "embed_view: expected a gradient of sizes {}: got {}", format_ints(view_size),
           format_ints(grad_view.sizes()));
  for (int64_t s : view_stride)
    TG_CHECK(s >= 0, Runtime, "embed_view: strides must not be negative: got {}", format_ints(view_stride));
  TG_CHECK(offset >= 0, Runtime, "embed_view: the offset must not be negative: got {}", offset);
  check_in_bounds(view_size, view_stride, offset, grad_view.dtype(),
                  static_cast<size_t>(checked_nbytes(sizes, grad_view.dtype(), "embed_view")), "embed_view");
  return {DimVector(sizes), grad_view.dtype(), grad_view.device(), {}};
}

TensorSpec read_view_shape(const Tensor& input, IntSpan view_size, IntSpan view_stride, int64_t offset) {
  TG_CHECK(view_size.size() == view_stride.size(), Runtime, "read_view: sizes and strides differ in length: {} and {}",
           format_ints(view_size), format_ints(view_stride));
  for (int64_t s : view_stride)
    TG_CHECK(s >= 0, Runtime, "read_view: strides must not be negative: got {}", format_ints(view_stride));
  TG_CHECK(offset >= 0, Runtime, "read_view: the offset must not be negative: got {}", offset);
  checked_numel(view_size, "read_view");
  check_in_bounds(view_size, view_stride, offset, input.dtype(), static_cast<size_t>(input.nbytes()), "read_view");
  return {DimVector(view_size), input.dtype(), input.device(), {}};
}

TensorSpec unfold_backward_shape(const Tensor& grad_windows, IntSpan sizes, int64_t dimension, int64_t size,
                                 int64_t step) {
  Tensor shadow = empty_tensor(sizes, DType::uint8, Device(DeviceType::Meta));
  ViewSpec windows = unfold_view(shadow, dimension, size, step);
  TG_CHECK(IntSpan(windows.sizes) == grad_windows.sizes(), Runtime,
           "unfold_backward: expected a gradient of sizes {}: got {}", format_ints(windows.sizes),
           format_ints(grad_windows.sizes()));
  return {DimVector(sizes), grad_windows.dtype(), grad_windows.device(), {}};
}

TensorSpec flip_shape(const Tensor& input, IntSpan dims) {
  if (!dims.empty()) dim_mask(dims, input.ndim(), "flip");
  return {DimVector(input.sizes()), input.dtype(), input.device(), geometry::preserved_strides(input)};
}

TensorSpec roll_shape(const Tensor& input, IntSpan shifts, IntSpan dims) {
  TG_CHECK(!shifts.empty(), Runtime, "roll: expected at least one shift");
  if (dims.empty()) {
    TG_CHECK(shifts.size() == 1, Runtime, "roll: expected one shift without dims: got {}", format_ints(shifts));
  } else {
    TG_CHECK(shifts.size() == dims.size(), Runtime, "roll: shifts and dims differ in length: {} and {}",
             format_ints(shifts), format_ints(dims));
    TG_CHECK(input.ndim() > 0, Index, "roll: a tensor without dimensions has no dimension {}", dims[0]);
    for (int64_t d : dims) wrap_dim(d, input.ndim(), "roll");
  }
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}

TensorSpec repeat_shape(const Tensor& input, IntSpan repeats) {
  TG_CHECK(repeats.size() >= static_cast<size_t>(input.ndim()), Runtime,
           "repeat: expected at least one entry per dimension: got {} for sizes {}", format_ints(repeats),
           format_ints(input.sizes()));
  DimVector sizes(repeats.size(), 1);
  size_t lead = repeats.size() - static_cast<size_t>(input.ndim());
  for (size_t d = 0; d < repeats.size(); ++d) {
    TG_CHECK(repeats[d] >= 0, Runtime, "repeat: counts must not be negative: got {}", format_ints(repeats));
    int64_t size = d < lead ? 1 : input.impl()->size(static_cast<int>(d - lead));
    const CheckedInt repeated = CheckedInt(size) * repeats[d];
    TG_CHECK(repeated.fits(), Runtime, "repeat: the number of elements does not fit into 63 bits: sizes {}, repeats {}",
             format_ints(input.sizes()), format_ints(repeats));
    sizes[d] = repeated.value();
  }
  return {sizes, input.dtype(), input.device(), {}};
}

}  // namespace tapegrad
