// Sizes, dtypes and devices of created tensors. Absent dtypes are inferred as PyTorch does: whole numbers give
// int64, others the default floating dtype.
#include <cmath>

#include "tapegrad/aten/iterate/number.h"
#include "tapegrad/aten/kernels_create.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad {

using OptDType = std::optional<DType>;
using OptDevice = std::optional<Device>;
using OptFormat = std::optional<MemoryFormat>;

namespace {

DType natural(const Scalar& s) { return s.natural_dtype(default_dtype()); }

TensorSpec filled(TensorSpec spec, const Scalar& value, const char* op) {
  check_number(op, value, spec.dtype);
  return spec;
}

TensorSpec vector_spec(int64_t n, DType dtype, OptDevice device) {
  return {DimVector{n}, dtype, device.value_or(default_device()), {}};
}

DimVector checked_sizes(IntSpan size, const char* op) {
  for (int64_t s : size) TG_CHECK(s >= 0, Runtime, "{}: sizes must not be negative: got {}", op, format_ints(size));
  return DimVector(size);
}

void check_direction(const char* op, bool ok, const Scalar& start, const Scalar& end, const Scalar& step) {
  TG_CHECK(ok, Runtime, "{}: the end must lie in the direction of the step: start {}, end {}, step {}", op,
           to_string(start), to_string(end), to_string(step));
}

void check_range(const char* op, const Scalar& start, const Scalar& end, const Scalar& step, DType result) {
  TG_CHECK(!is_complex(result) && result != DType::bool_, NotImplemented, "{}: not implemented for dtype {}", op,
           result);
  TG_CHECK(!start.is_complex() && !end.is_complex() && !step.is_complex(), Runtime,
           "{}: complex numbers have no order: got {}, {}, {}", op, to_string(start), to_string(end), to_string(step));
  const double a = start.to<double>(), b = end.to<double>(), s = step.to<double>();
  TG_CHECK(s != 0, Runtime, "{}: step must not be zero", op);
  TG_CHECK(!std::isnan(s), Runtime, "{}: step must be a number: got {}", op, s);
  TG_CHECK(std::isfinite(a) && std::isfinite(b), Runtime, "{}: the range must be finite: start {}, end {}, step {}", op,
           a, b, s);
  check_direction(op, s > 0 ? b >= a : b <= a, start, end, step);
  for (const Scalar& x : {start, end, step})
    TG_CHECK(!is_integral(result) || x.is_integral() || std::abs(x.to<double>()) < 0x1p63, Runtime,
             "{}: a number does not fit into int64: {}", op, to_string(x));
}

// ceil((end - start) / step), exact for integers. Of int64 all three are cut to whole numbers first, of other integers
// only what is written (arange_cpu).
int64_t arange_length(const Scalar& start, const Scalar& end, const Scalar& step, bool whole) {
  if (whole) {
    int64_t a = start.to<int64_t>(), b = end.to<int64_t>(), s = step.to<int64_t>();
    TG_CHECK(s != 0, Value, "arange: step must not be zero as a whole number: got {}", to_string(step));
    check_direction("arange", s > 0 ? b >= a : b <= a, start, end, step);
    // Unsigned, so that neither the distance nor -INT64_MIN overflows.
    uint64_t distance = s > 0 ? static_cast<uint64_t>(b) - static_cast<uint64_t>(a)
                              : static_cast<uint64_t>(a) - static_cast<uint64_t>(b);
    uint64_t size = s > 0 ? static_cast<uint64_t>(s) : 0 - static_cast<uint64_t>(s);
    uint64_t n = distance / size + (distance % size != 0);
    TG_CHECK(n <= static_cast<uint64_t>(INT64_MAX), Runtime, "arange: too many elements: start {}, end {}, step {}", a,
             b, s);
    return static_cast<int64_t>(n);
  }
  const double a = start.to<double>(), b = end.to<double>(), s = step.to<double>();
  double n = std::ceil((b - a) / s);
  TG_CHECK(n >= 0 && n < 9.2e18, Runtime, "arange: too many elements: start {}, end {}, step {}", a, b, s);
  return static_cast<int64_t>(n);
}

int64_t checked_steps(int64_t steps, const char* op) {
  TG_CHECK(steps >= 0, Runtime, "{}: the number of steps must not be negative: got {}", op, steps);
  return steps;
}

DType spaced_dtype(const Scalar& start, const Scalar& end, OptDType dtype, const char* op) {
  bool complex = start.is_complex() || end.is_complex();
  DType result = dtype.value_or(complex ? to_complex(default_dtype()) : default_dtype());
  TG_CHECK(!complex || is_complex(result), Runtime,
           "torch.{}(): inferred dtype {} can't be safely cast to passed dtype {}", op, to_complex(default_dtype()),
           result);
  check_number(op, start, result);
  check_number(op, end, result);
  return result;
}

}  // namespace

TensorSpec empty_shape(IntSpan size, OptDType dtype, OptDevice device, OptFormat format) {
  TensorSpec spec = create_spec(size, dtype, device, "empty");
  TG_CHECK(format != MemoryFormat::Preserve, Runtime, "empty: memory format preserve is not a layout");
  if (format == MemoryFormat::ChannelsLast) spec.strides = geometry::format_strides(size, *format, {}, "empty");
  return spec;
}

TensorSpec empty_strided_shape(IntSpan size, IntSpan stride, OptDType dtype, OptDevice device) {
  TG_CHECK(size.size() == stride.size(), Runtime, "empty_strided: sizes and strides differ in length: {} and {}",
           format_ints(size), format_ints(stride));
  TensorSpec spec = create_spec(size, dtype, device, "empty_strided");
  spec.strides = DimVector(stride);
  return spec;
}

TensorSpec zeros_shape(IntSpan size, OptDType dtype, OptDevice device) {
  return create_spec(size, dtype, device, "zeros");
}
TensorSpec ones_shape(IntSpan size, OptDType dtype, OptDevice device) {
  return create_spec(size, dtype, device, "ones");
}

TensorSpec full_shape(IntSpan size, const Scalar& fill_value, OptDType dtype, OptDevice device) {
  return filled(create_spec(size, dtype.value_or(natural(fill_value)), device, "full"), fill_value, "full");
}

TensorSpec scalar_tensor_shape(const Scalar& s, OptDType dtype, OptDevice device) {
  return filled(create_spec({}, dtype, device, "scalar_tensor"), s, "scalar_tensor");
}

TensorSpec empty_like_shape(const Tensor& input, OptDType dtype, OptDevice device, OptFormat format) {
  TensorSpec spec{DimVector(input.sizes()), dtype.value_or(input.dtype()), device.value_or(input.device()), {}};
  MemoryFormat wanted = format.value_or(MemoryFormat::Preserve);
  if (wanted == MemoryFormat::ChannelsLast || (wanted == MemoryFormat::Preserve && !input.is_contiguous()))
    spec.strides = geometry::format_strides(input.sizes(), wanted, input, "empty_like");
  return spec;
}

TensorSpec full_like_shape(const Tensor& input, const Scalar& fill_value, OptDType dtype, OptDevice device,
                           OptFormat format) {
  return filled(empty_like_shape(input, dtype, device, format), fill_value, "full_like");
}

TensorSpec new_shape(const Tensor& input, IntSpan size, OptDType dtype, OptDevice device) {
  return {checked_sizes(size, "new"), dtype.value_or(input.dtype()), device.value_or(input.device()), {}};
}

TensorSpec new_empty_strided_shape(const Tensor& input, IntSpan size, IntSpan stride, OptDType dtype,
                                   OptDevice device) {
  TG_CHECK(size.size() == stride.size(), Runtime,
           "new_empty_strided: dimensionality of sizes must match dimensionality of strides: got {} and {}",
           format_ints(size), format_ints(stride));
  TensorSpec spec = new_shape(input, size, dtype, device);
  spec.strides = DimVector(stride);
  return spec;
}

TensorSpec new_full_shape(const Tensor& input, IntSpan size, const Scalar& fill_value, OptDType dtype,
                          OptDevice device) {
  return filled(new_shape(input, size, dtype, device), fill_value, "new_full");
}

TensorSpec arange_shape(const Scalar& start, const Scalar& end, const Scalar& step, OptDType dtype, OptDevice device) {
  const bool whole = start.is_integral() && end.is_integral() && step.is_integral();
  const DType result = dtype.value_or(whole ? DType::int64 : default_dtype());
  check_range("arange", start, end, step, result);
  return vector_spec(arange_length(start, end, step, whole || result == DType::int64), result, device);
}

TensorSpec arange_end_shape(const Scalar& end, OptDType dtype, OptDevice device) {
  return arange_shape(0, end, 1, dtype, device);
}

TensorSpec linspace_shape(const Scalar& start, const Scalar& end, int64_t steps, OptDType dtype, OptDevice device) {
  return vector_spec(checked_steps(steps, "linspace"), spaced_dtype(start, end, dtype, "linspace"), device);
}

TensorSpec logspace_shape(const Scalar& start, const Scalar& end, int64_t steps, double, OptDType dtype,
                          OptDevice device) {
  return vector_spec(checked_steps(steps, "logspace"), spaced_dtype(start, end, dtype, "logspace"), device);
}

TensorSpec empty_permuted_shape(IntSpan size, IntSpan physical_layout, OptDType dtype, OptDevice device) {
  TensorSpec spec = create_spec(size, dtype, device, "empty_permuted");
  TG_CHECK(physical_layout.size() == size.size(), Runtime,
           "empty_permuted: physical_layout and size differ in length: {} and {}", format_ints(physical_layout),
           format_ints(size));
  spec.strides = DimVector(size.size(), 0);
  DimVector seen(size.size(), 0);
  int64_t step = 1;
  for (size_t k = physical_layout.size(); k-- > 0;) {
    const int64_t d = physical_layout[k];
    TG_CHECK(d >= 0 && d < static_cast<int64_t>(size.size()) && !seen[static_cast<size_t>(d)], Runtime,
             "empty_permuted: physical_layout must be an order of the dimensions: got {}",
             format_ints(physical_layout));
    seen[static_cast<size_t>(d)] = 1;
    spec.strides[static_cast<size_t>(d)] = step;
    step *= std::max<int64_t>(size[static_cast<size_t>(d)], 1);
  }
  return spec;
}

TensorSpec range_shape(const Scalar& start, const Scalar& end, const Scalar& step, OptDType dtype, OptDevice device) {
  warn(
      "range is deprecated, because its behavior is inconsistent with Python's range builtin: use arange, which gives "
      "values in [start, end)");
  const DType result = dtype.value_or(default_dtype());
  check_range("range", start, end, step, result);
  // Of integers all three are cut to whole numbers.
  const auto number = [result](const Scalar& x) {
    return is_integral(result) ? std::trunc(x.to<double>()) : x.to<double>();
  };
  const double a = number(start), b = number(end), s = number(step);
  TG_CHECK(s != 0, Runtime, "range: step must not be zero as a whole number: got {}", to_string(step));
  const double n = std::floor((b - a) / s) + 1;
  TG_CHECK(n >= 0 && n < 9.2e18, Runtime, "range: too many elements: start {}, end {}, step {}", a, b, s);
  return vector_spec(static_cast<int64_t>(n), result, device);
}

TensorSpec eye_shape(int64_t n, std::optional<int64_t> m, OptDType dtype, OptDevice device) {
  TG_CHECK(n >= 0 && m.value_or(0) >= 0, Runtime, "eye: n and m must be greater or equal to 0: got {} and {}", n,
           m.value_or(n));
  return create_spec({n, m.value_or(n)}, dtype, device, "eye");
}

}  // namespace tapegrad
