// Shapes and checks of the transforms' kernels, frequencies and windows.
#include "tapegrad/aten/kernels_fft.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {
namespace {

TensorSpec resized(const Tensor& input, int64_t dim, int64_t n, DType dtype) {
  TensorSpec spec{DimVector(input.sizes()), dtype, input.device(), {}};
  spec.sizes[static_cast<size_t>(dim)] = n;
  return spec;
}

void check_dim(const Tensor& input, int64_t dim) {
  TG_CHECK(dim >= 0 && dim < input.ndim() && input.size(dim) > 0, Runtime,
           "fft: dimension {} of shape {} cannot be transformed", dim, format_ints(input.sizes()));
}

TensorSpec vector_of(const char* op, int64_t n, std::optional<DType> dtype, std::optional<Device> device) {
  DType t = dtype.value_or(default_dtype());
  TG_CHECK(n >= 0, Runtime, "{}: the length must not be negative: got {}", op, n);
  TG_CHECK(n <= int64_t{1} << 56, Runtime, "{}: the length {} is too large", op, n);
  TG_CHECK(is_floating_point(t), Runtime, "{}: dtype must be floating: got {}", op, t);
  return {{n}, t, device.value_or(default_device()), {}};
}

}  // namespace

TensorSpec fft_c2c_shape(const Tensor& input, IntSpan dims, double, bool) {
  TG_CHECK(input.is_complex(), Runtime, "fft: expected a complex tensor: got {}", input.dtype());
  TG_CHECK(!dims.empty(), Runtime, "fft: at least one dimension is needed");
  for (int64_t d : dims) check_dim(input, d);
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}

TensorSpec fft_r2c_shape(const Tensor& input, int64_t dim, double, bool onesided) {
  TG_CHECK(input.dtype() == DType::float32 || input.dtype() == DType::float64, Runtime,
           "fft: expected a tensor of float32 or float64: got {}", input.dtype());
  check_dim(input, dim);
  int64_t n = input.size(dim);
  return resized(input, dim, onesided ? n / 2 + 1 : n, to_complex(input.dtype()));
}

TensorSpec fft_c2r_shape(const Tensor& input, int64_t dim, int64_t n, double) {
  TG_CHECK(input.is_complex(), Runtime, "fft: expected a complex tensor: got {}", input.dtype());
  check_dim(input, dim);
  TG_CHECK(n >= 1 && n / 2 + 1 == input.size(dim), Runtime, "fft: {} numbers have {} frequencies: got {}", n, n / 2 + 1,
           input.size(dim));
  return resized(input, dim, n, to_real(input.dtype()));
}

TensorSpec fftfreq_shape(int64_t n, double, std::optional<DType> dtype, std::optional<Device> device) {
  return vector_of("fft.fftfreq", n, dtype, device);
}

TensorSpec rfftfreq_shape(int64_t n, double, std::optional<DType> dtype, std::optional<Device> device) {
  TensorSpec spec = vector_of("fft.rfftfreq", n, dtype, device);
  spec.sizes[0] = n / 2 + 1;
  return spec;
}

TensorSpec hann_window_shape(int64_t n, bool, std::optional<DType> dtype, std::optional<Device> device) {
  return vector_of("window", n, dtype, device);
}

TensorSpec hamming_window_shape(int64_t n, bool, double, double, std::optional<DType> dtype,
                                std::optional<Device> device) {
  return vector_of("hamming_window", n, dtype, device);
}

TensorSpec kaiser_window_shape(int64_t n, bool, double, std::optional<DType> dtype, std::optional<Device> device) {
  return vector_of("kaiser_window", n, dtype, device);
}

}  // namespace tapegrad
