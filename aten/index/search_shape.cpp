#include <cmath>

#include "tapegrad/aten/kernels_index.h"

namespace tapegrad {

TensorSpec searchsorted_shape(const Tensor& sorted_sequence, const Operand& input, bool out_int32, bool right,
                              std::optional<std::string_view> side, const Tensor& sorter) {
  const Tensor& values = input.tensor();
  TG_CHECK(!side || *side == "left" || *side == "right", Runtime,
           "searchsorted: side is \"left\" or \"right\": got \"{}\"", fmt::string_view(side->data(), side->size()));
  TG_CHECK(!side || !right || *side == "right", Runtime, "searchsorted: side is \"left\" but right is True");
  TG_CHECK(sorted_sequence.ndim() > 0, Runtime, "searchsorted: expected a sorted sequence with at least 1 dimension");
  TG_CHECK(!is_complex(sorted_sequence.dtype()) && !is_complex(values.dtype()), Runtime,
           "searchsorted: complex numbers have no order");
  if (sorted_sequence.ndim() > 1) {
    bool agree = values.ndim() == sorted_sequence.ndim();
    for (int d = 0; agree && d < values.ndim() - 1; ++d)
      agree = values.impl()->size(d) == sorted_sequence.impl()->size(d);
    TG_CHECK(agree, Runtime, "searchsorted: all sizes but the last must agree: got {} and {}",
             format_ints(sorted_sequence.sizes()), format_ints(values.sizes()));
  }
  if (sorter.defined()) {
    TG_CHECK(sorter.sizes() == sorted_sequence.sizes(), Runtime,
             "searchsorted: sorter and sequence differ in size: {} and {}", format_ints(sorter.sizes()),
             format_ints(sorted_sequence.sizes()));
    TG_CHECK(sorter.dtype() == DType::int64, Runtime, "searchsorted: expected a sorter of dtype int64: got {}",
             sorter.dtype());
  }
  return {DimVector(values.sizes()), out_int32 ? DType::int32 : DType::int64, sorted_sequence.device(), {}};
}

TensorSpec bucketize_shape(const Operand& input, const Tensor& boundaries, bool out_int32, bool) {
  TG_CHECK(boundaries.ndim() == 1, Runtime, "bucketize: expected boundaries with 1 dimension: got {}",
           format_ints(boundaries.sizes()));
  TG_CHECK(!is_complex(boundaries.dtype()) && !is_complex(input.tensor().dtype()), Runtime,
           "bucketize: complex numbers have no order");
  return {DimVector(input.tensor().sizes()), out_int32 ? DType::int32 : DType::int64, boundaries.device(), {}};
}

TensorSpec isin_shape(const Operand& elements, const Operand& test_elements, bool, bool) {
  TG_CHECK(!is_complex(elements.tensor().dtype()) && !is_complex(test_elements.tensor().dtype()), Runtime,
           "isin: not implemented for complex numbers");
  return {DimVector(elements.tensor().sizes()), DType::bool_, elements.tensor().device(), {}};
}

TensorSpec histc_shape(const Tensor& input, int64_t bins, const Scalar& min, const Scalar& max) {
  TG_CHECK(bins > 0, Runtime, "histc: bins must be > 0: got {}", bins);
  TG_CHECK(is_floating_point(input.dtype()) || is_integral(input.dtype()), Runtime,
           "histc: not implemented for dtype {}", input.dtype());
  const double low = min.to<double>(), high = max.to<double>();
  TG_CHECK(std::isfinite(low) && std::isfinite(high), Runtime, "histc: the range must be finite: got {} to {}", low,
           high);
  TG_CHECK(low <= high, Runtime, "histc: max must not be smaller than min: got {} and {}", high, low);
  return {DimVector{bins}, input.dtype(), input.device(), {}};
}

}  // namespace tapegrad
