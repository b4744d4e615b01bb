#include <cmath>
#include <cstring>

#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/kernels_create.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

using OptDType = std::optional<DType>;
using OptDevice = std::optional<Device>;
using OptFormat = std::optional<MemoryFormat>;

namespace {

// Created tensors are dense in some order, so their memory is one run.
void zero_dense(const Tensor& out) {
  if (out.numel() == 0) return;
  char* p = static_cast<char*>(out.data_ptr());
  parallel_for(0, out.nbytes(), 256 << 10,
               [p](int64_t begin, int64_t end) { std::memset(p + begin, 0, static_cast<size_t>(end - begin)); });
}

// Element i is f(i), computed in double (int64 for integers by the second function).
template <class F, class G>
void generate(const Tensor& out, F&& real, G&& whole) {
  dispatch_dtype(bits_dtype(out.dtype()), [&]<class T>() {
    T* p = static_cast<T*>(out.data_ptr());
    parallel_for(0, out.numel(), 16384, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if constexpr (std::is_integral_v<T>)
          p[i] = convert_value<T>(whole(i));
        else
          p[i] = convert_value<T>(real(i));
      }
    });
  });
}

}  // namespace

void zeros_cpu(IntSpan, OptDType, OptDevice, const Tensor& out) { zero_dense(out); }
void ones_cpu(IntSpan, OptDType, OptDevice, const Tensor& out) { fill_cpu(out, Operand(1)); }
void full_cpu(IntSpan, const Scalar& fill_value, OptDType, OptDevice, const Tensor& out) {
  fill_cpu(out, Operand(fill_value));
}
void scalar_tensor_cpu(const Scalar& s, OptDType, OptDevice, const Tensor& out) { fill_cpu(out, Operand(s)); }
void zeros_like_cpu(const Tensor&, OptDType, OptDevice, OptFormat, const Tensor& out) { zero_dense(out); }
void ones_like_cpu(const Tensor&, OptDType, OptDevice, OptFormat, const Tensor& out) { fill_cpu(out, Operand(1)); }
void full_like_cpu(const Tensor&, const Scalar& fill_value, OptDType, OptDevice, OptFormat, const Tensor& out) {
  fill_cpu(out, Operand(fill_value));
}
void new_zeros_cpu(const Tensor&, IntSpan, OptDType, OptDevice, const Tensor& out) { zero_dense(out); }
void new_ones_cpu(const Tensor&, IntSpan, OptDType, OptDevice, const Tensor& out) { fill_cpu(out, Operand(1)); }
void new_full_cpu(const Tensor&, IntSpan, const Scalar& fill_value, OptDType, OptDevice, const Tensor& out) {
  fill_cpu(out, Operand(fill_value));
}

void arange_cpu(const Scalar& start, const Scalar& /*end*/, const Scalar& step, OptDType, OptDevice,
                const Tensor& out) {
  if (is_integral(out.dtype())) {
    // Start and step are cut to whole numbers. Unsigned, as the last step past the end may wrap around.
    const uint64_t first = static_cast<uint64_t>(start.to<int64_t>()), by = static_cast<uint64_t>(step.to<int64_t>());
    auto whole = [first, by](int64_t i) { return static_cast<int64_t>(first + by * static_cast<uint64_t>(i)); };
    return generate(out, whole, whole);
  }
  const double a = start.to<double>(), s = step.to<double>();
  auto real = [a, s](int64_t i) { return a + s * static_cast<double>(i); };
  generate(out, real, real);
}

void range_cpu(const Scalar& start, const Scalar& end, const Scalar& step, OptDType dtype, OptDevice device,
               const Tensor& out) {
  arange_cpu(start, end, step, dtype, device, out);
}

void arange_end_cpu(const Scalar& end, OptDType dtype, OptDevice device, const Tensor& out) {
  arange_cpu(0, end, 1, dtype, device, out);
}

namespace {
// Integers are spaced between whole ends.
Scalar whole(const Scalar& end, const Tensor& out) {
  return is_integral(out.dtype()) && !end.is_integral() ? Scalar(std::trunc(end.to<double>())) : end;
}

// From both ends to the middle, so that the last value is exactly `end`.
template <class R>
auto spaced(const Scalar& start, const Scalar& end, int64_t steps) {
  const R a = start.to<R>(), b = end.to<R>();
  const R step = steps > 1 ? (b - a) / static_cast<double>(steps - 1) : R(0);
  return [=](int64_t i) {
    return i < (steps + 1) / 2 ? a + step * static_cast<double>(i) : b - step * static_cast<double>(steps - 1 - i);
  };
}
}  // namespace

void linspace_cpu(const Scalar& start, const Scalar& end, int64_t steps, OptDType, OptDevice, const Tensor& out) {
  if (is_complex(out.dtype())) {
    auto f = spaced<complex128_t>(start, end, steps);
    return generate(out, f, [](int64_t i) { return i; });
  }
  auto f = spaced<double>(whole(start, out), whole(end, out), steps);
  generate(out, f, f);
}

void logspace_cpu(const Scalar& start, const Scalar& end, int64_t steps, double base, OptDType, OptDevice,
                  const Tensor& out) {
  if (is_complex(out.dtype())) {
    auto f = spaced<complex128_t>(start, end, steps);
    return generate(out, [&](int64_t i) { return std::pow(complex128_t(base), f(i)); }, [](int64_t i) { return i; });
  }
  auto f = spaced<double>(whole(start, out), whole(end, out), steps);
  auto g = [&](int64_t i) { return std::pow(base, f(i)); };
  generate(out, g, g);
}

void eye_cpu(int64_t, std::optional<int64_t>, OptDType, OptDevice, const Tensor& out) {
  zero_dense(out);
  const int64_t n = std::min(out.size(0), out.size(1));
  if (n == 0) return;
  fill_cpu(alias_tensor(out, {n}, {out.size(1) + 1}, out.storage_offset()), Operand(1));
}

}  // namespace tapegrad::cpu::TG_ISA
