// Values of windows and frequencies, computed in double; for host and device.
#pragma once

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::windows {

TG_HD inline double turn(double x) { return math::cos(2 * math::kPi * x); }

// The modified Bessel function of order 0 by its power series (Abramowitz and Stegun, 9.6.12), whose terms are all
// positive.
TG_HD inline double bessel_i0(double x) {
  double quarter = x * x / 4, term = 1, sum = 1;
  for (int k = 1; k < 1000 && term > sum * 1e-17; ++k) {
    term *= quarter / (static_cast<double>(k) * static_cast<double>(k));
    sum += term;
  }
  return sum;
}

// Windows as functions of x = k / n in [0, 1].
struct Hann {
  TG_HD double operator()(double x) const { return 0.5 - 0.5 * turn(x); }
};
struct Hamming {
  double alpha, beta;
  TG_HD double operator()(double x) const { return alpha - beta * turn(x); }
};
struct Blackman {
  TG_HD double operator()(double x) const { return 0.42 - 0.5 * turn(x) + 0.08 * turn(2 * x); }
};
struct Bartlett {
  TG_HD double operator()(double x) const { return 1 - math::magnitude(2 * x - 1); }
};
struct Kaiser {
  double beta, scale;
  explicit Kaiser(double b) : beta(b), scale(bessel_i0(b)) {}
  TG_HD double operator()(double x) const {
    const double y = 2 * x - 1, inside = 1 - y * y;
    return bessel_i0(beta * math::sqrt(inside > 0 ? inside : 0.0)) / scale;
  }
};

// Sample k of a window; of one sample it is 1.
template <class F>
struct Samples {
  F value;
  double n;
  Samples(const F& f, int64_t length, bool periodic)
      : value(f), n(length == 1 ? 0.0 : static_cast<double>(periodic ? length : length - 1)) {}
  TG_HD double operator()(int64_t k) const { return n == 0 ? 1.0 : value(static_cast<double>(k) / n); }
};

struct Frequencies {
  int64_t n;
  double step;
  bool real;  // only those that are not negative
  Frequencies(int64_t count, double d, bool only_real)
      : n(count), step(1 / (static_cast<double>(count) * d)), real(only_real) {}
  TG_HD double operator()(int64_t k) const { return static_cast<double>(real || k < (n + 1) / 2 ? k : k - n) * step; }
};

}  // namespace tapegrad::windows

// The rows of windows and frequencies for one device: `named(hann_window)` is the kernel's name there, and
// fill(out, f) computes element i of `out` as f(i).
#define TG_WINDOW_KERNELS(named, fill)                                                                              \
  void named(hann_window)(int64_t, bool periodic, std::optional<DType>, std::optional<Device>, const Tensor& out) { \
    fill(out, windows::Samples(windows::Hann(), out.numel(), periodic));                                            \
  }                                                                                                                 \
  void named(hamming_window)(int64_t, bool periodic, double alpha, double beta, std::optional<DType>,               \
                             std::optional<Device>, const Tensor& out) {                                            \
    fill(out, windows::Samples(windows::Hamming{alpha, beta}, out.numel(), periodic));                              \
  }                                                                                                                 \
  void named(blackman_window)(int64_t, bool periodic, std::optional<DType>, std::optional<Device>,                  \
                              const Tensor& out) {                                                                  \
    fill(out, windows::Samples(windows::Blackman(), out.numel(), periodic));                                        \
  }                                                                                                                 \
  void named(bartlett_window)(int64_t, bool periodic, std::optional<DType>, std::optional<Device>,                  \
                              const Tensor& out) {                                                                  \
    fill(out, windows::Samples(windows::Bartlett(), out.numel(), periodic));                                        \
  }                                                                                                                 \
  void named(kaiser_window)(int64_t, bool periodic, double beta, std::optional<DType>, std::optional<Device>,       \
                            const Tensor& out) {                                                                    \
    fill(out, windows::Samples(windows::Kaiser(beta), out.numel(), periodic));                                      \
  }                                                                                                                 \
  void named(fftfreq)(int64_t n, double d, std::optional<DType>, std::optional<Device>, const Tensor& out) {        \
    fill(out, windows::Frequencies(n, d, false));                                                                   \
  }                                                                                                                 \
  void named(rfftfreq)(int64_t n, double d, std::optional<DType>, std::optional<Device>, const Tensor& out) {       \
    fill(out, windows::Frequencies(n, d, true));                                                                    \
  }
