// Continuous distributions and the creation operators that use them.
#include <cmath>

#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/random/fill.h"
#include "tapegrad/aten/random/ranges.h"
#include "tapegrad/aten/typed.h"

namespace tapegrad::cpu::TG_ISA {

using OptDType = std::optional<DType>;
using OptDevice = std::optional<Device>;
using OptFormat = std::optional<MemoryFormat>;
using Gen = const GeneratorPtr&;

namespace {

// Calls fill(sink, count) for numbers computed in float or double: their sink is the tensor's own memory where it is
// contiguous, else a buffer that is then copied. Complex tensors are pairs.
template <class F>
void with_real_memory(const Tensor& t, F&& fill) {
  if (t.numel() == 0) return;
  const int64_t n = t.numel() * (t.is_complex() ? 2 : 1);
  const bool direct = t.is_contiguous();
  const Tensor memory = direct ? t : empty_tensor(t.sizes(), t.dtype());
  dispatch_floating(to_real(t.dtype()), [&]<class Out>() {
    using T = compute_t<Out>;
    fill(Sink<T>(static_cast<Out*>(memory.data_ptr())), n);
  });
  if (!direct) copy_cpu(t, memory, false);
}

void normal(const Tensor& t, double mean, double std, PhiloxState state) {
  // A complex normal shares its variance between its parts.
  const double spread = t.is_complex() ? std * std::sqrt(0.5) : std;
  with_real_memory(t, [&]<class T>(const Sink<T>& p, int64_t n) {
    const T m = static_cast<T>(mean), s = static_cast<T>(spread);
    if (m == 0 && s == 1) return fill_normal(p, n, state, [](T z) { return z; });
    fill_normal(p, n, state, [m, s](T z) { return std::fma(z, s, m); });
  });
}

void uniform(const Tensor& t, double low, double high, PhiloxState state) {
  with_real_memory(t, [&]<class T>(const Sink<T>& p, int64_t n) {
    const T a = static_cast<T>(low), b = static_cast<T>(high), width = b - a;
    if (a == 0 && width == 1 && !is_half(t.dtype())) return fill_uniform(p, n, state, [](T u) { return u; });
    // Rounding may reach the upper end, which does not belong to the range.
    const T last = random::last_of(a, b, t.dtype());
    fill_uniform(p, n, state, [=](T u) {
      const T v = std::fma(u, width, a);
      return v < last ? v : last;
    });
  });
}

}  // namespace

void rand_cpu(IntSpan, Gen, OptDType, OptDevice, const PhiloxState& state, const Tensor& out) {
  uniform(out, 0, 1, state);
}
void randn_cpu(IntSpan, Gen, OptDType, OptDevice, const PhiloxState& state, const Tensor& out) {
  normal(out, 0, 1, state);
}
void rand_like_cpu(const Tensor&, Gen, OptDType, OptDevice, OptFormat, const PhiloxState& state, const Tensor& out) {
  uniform(out, 0, 1, state);
}
void randn_like_cpu(const Tensor&, Gen, OptDType, OptDevice, OptFormat, const PhiloxState& state, const Tensor& out) {
  normal(out, 0, 1, state);
}
void normal_fill_cpu(const Tensor& self, double mean, double std, Gen, const PhiloxState& state) {
  normal(self, mean, std, state);
}
void uniform_fill_cpu(const Tensor& self, double from, double to, Gen, const PhiloxState& state) {
  uniform(self, from, to, state);
}

void exponential_fill_cpu(const Tensor& self, double lambd, Gen, const PhiloxState& state) {
  with_real_memory(self, [&]<class T>(const Sink<T>& p, int64_t n) {
    const T scale = static_cast<T>(-1 / lambd);
    fill_open_uniform(p, n, state, [scale](T u) { return scale * detail::philox_log(u); });
  });
}

void log_normal_fill_cpu(const Tensor& self, double mean, double std, Gen, const PhiloxState& state) {
  with_real_memory(self, [&]<class T>(const Sink<T>& p, int64_t n) {
    fill_normal(p, n, state,
                [=](T z) { return static_cast<T>(std::exp(std::fma(static_cast<double>(z), std, mean))); });
  });
}

void cauchy_fill_cpu(const Tensor& self, double median, double sigma, Gen, const PhiloxState& state) {
  with_real_memory(self, [&]<class T>(const Sink<T>& p, int64_t n) {
    fill_open_uniform(p, n, state, [=](T u) {
      return static_cast<T>(std::fma(sigma, std::tan(M_PI * (static_cast<double>(u) - 0.5)), median));
    });
  });
}

void geometric_fill_cpu(const Tensor& self, double p, Gen, const PhiloxState& state) {
  // The first success in trials that succeed with p; 64-bit draws, so that long waits are not cut off.
  Tensor trials = empty_tensor(self.sizes(), DType::float64);
  const double scale = 1 / std::log1p(-p);
  fill_open_uniform(Sink<double>(static_cast<double*>(trials.data_ptr())), trials.numel(), state,
                    [scale](double u) { return std::ceil(std::log(u) * scale); });
  copy_cpu(self, trials, false);
}

}  // namespace tapegrad::cpu::TG_ISA
