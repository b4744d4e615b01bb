// Creation of tensors. Sequences are computed in double, int64 or complex128, as on the CPU, and converted.
#include <cmath>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/create/sequence.h"
#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda {

using OptDType = std::optional<DType>;
using OptDevice = std::optional<Device>;
using OptFormat = std::optional<MemoryFormat>;

namespace {

struct Whole {
  uint64_t first, by;  // the last step past the end may wrap around
  TG_HD int64_t operator()(int64_t i) const { return static_cast<int64_t>(first + by * static_cast<uint64_t>(i)); }
};
struct Steps {
  double first, by;
  TG_HD double operator()(int64_t i) const { return first + by * static_cast<double>(i); }
};
// From both ends to the middle, so that the last value is exactly `b`.
template <class R>
struct Spaced {
  R a, b, step;
  int64_t steps;
  Spaced(const Scalar& start, const Scalar& end, int64_t n) : a(start.to<R>()), b(end.to<R>()), step(0), steps(n) {
    if (n > 1) step = (b - a) / static_cast<double>(n - 1);
  }
  TG_HD R operator()(int64_t i) const {
    return i < (steps + 1) / 2 ? a + step * static_cast<double>(i) : b - step * static_cast<double>(steps - 1 - i);
  }
};
struct LogSpaced {
  Spaced<double> exponent;
  double base;
  TG_HD double operator()(int64_t i) const { return math::pow(base, exponent(i)); }
};
// base^z for a base above 0 is e^(z log base).
struct ComplexLogSpaced {
  Spaced<complex128_t> exponent;
  double log_base;
  TG_HD complex128_t operator()(int64_t i) const {
    const complex128_t z = exponent(i);
    const double size = math::exp(z.real() * log_base), angle = z.imag() * log_base;
    return complex128_t(size * math::cos(angle), size * math::sin(angle));
  }
};

// Integers are spaced between whole ends.
Scalar whole(const Scalar& end, const Tensor& out) {
  return is_integral(out.dtype()) && !end.is_integral() ? Scalar(std::trunc(end.to<double>())) : end;
}

}  // namespace

void zeros_cuda(IntSpan, OptDType, OptDevice, const Tensor& out) { zero_dense(out); }
void ones_cuda(IntSpan, OptDType, OptDevice, const Tensor& out) { fill_value(out, 1); }
void full_cuda(IntSpan, const Scalar& value, OptDType, OptDevice, const Tensor& out) { fill_value(out, value); }
void scalar_tensor_cuda(const Scalar& s, OptDType, OptDevice, const Tensor& out) { fill_value(out, s); }
void zeros_like_cuda(const Tensor&, OptDType, OptDevice, OptFormat, const Tensor& out) { zero_dense(out); }
void ones_like_cuda(const Tensor&, OptDType, OptDevice, OptFormat, const Tensor& out) { fill_value(out, 1); }
void full_like_cuda(const Tensor&, const Scalar& value, OptDType, OptDevice, OptFormat, const Tensor& out) {
  fill_value(out, value);
}
void new_zeros_cuda(const Tensor&, IntSpan, OptDType, OptDevice, const Tensor& out) { zero_dense(out); }
void new_ones_cuda(const Tensor&, IntSpan, OptDType, OptDevice, const Tensor& out) { fill_value(out, 1); }
void new_full_cuda(const Tensor&, IntSpan, const Scalar& value, OptDType, OptDevice, const Tensor& out) {
  fill_value(out, value);
}

void arange_cuda(const Scalar& start, const Scalar&, const Scalar& step, OptDType, OptDevice, const Tensor& out) {
  if (is_integral(out.dtype()))
    return sequence<int64_t>(
        out, Whole{static_cast<uint64_t>(start.to<int64_t>()), static_cast<uint64_t>(step.to<int64_t>())});
  sequence<double>(out, Steps{start.to<double>(), step.to<double>()});
}
void range_cuda(const Scalar& start, const Scalar& end, const Scalar& step, OptDType dtype, OptDevice device,
                const Tensor& out) {
  arange_cuda(start, end, step, dtype, device, out);
}
void arange_end_cuda(const Scalar& end, OptDType dtype, OptDevice device, const Tensor& out) {
  arange_cuda(0, end, 1, dtype, device, out);
}

void linspace_cuda(const Scalar& start, const Scalar& end, int64_t steps, OptDType, OptDevice, const Tensor& out) {
  if (is_complex(out.dtype())) return sequence<complex128_t>(out, Spaced<complex128_t>(start, end, steps));
  sequence<double>(out, Spaced<double>(whole(start, out), whole(end, out), steps));
}
void logspace_cuda(const Scalar& start, const Scalar& end, int64_t steps, double base, OptDType, OptDevice,
                   const Tensor& out) {
  if (is_complex(out.dtype()))
    return sequence<complex128_t>(out, ComplexLogSpaced{Spaced<complex128_t>(start, end, steps), std::log(base)});
  sequence<double>(out, LogSpaced{Spaced<double>(whole(start, out), whole(end, out), steps), base});
}

void eye_cuda(int64_t, std::optional<int64_t>, OptDType, OptDevice, const Tensor& out) {
  zero_dense(out);
  const int64_t n = std::min(out.size(0), out.size(1));
  if (n > 0) fill_value(alias_tensor(out, {n}, {out.size(1) + 1}, out.storage_offset()), 1);
}

}  // namespace tapegrad::cuda
