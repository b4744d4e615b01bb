// Kernels of windows and frequencies. Values are computed in double and rounded once.
#include <cmath>
#include <numbers>

#include "tapegrad/aten/kernels_fft.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/parallel.h"

namespace tapegrad::cpu {
namespace {

template <class F>
void fill(const Tensor& out, F&& value) {
  int64_t n = out.numel();
  dispatch_floating(out.dtype(), [&]<class T>() {
    T* to = static_cast<T*>(out.data_ptr());
    parallel_for(0, n, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = T(value(i));
    });
  });
}

// value(x) for x = k / n in [0, 1]; a window of one sample is 1.
template <class F>
void fill_window(const Tensor& out, bool periodic, F&& value) {
  int64_t length = out.numel();
  if (length == 1) return fill(out, [](int64_t) { return 1.0; });
  double n = static_cast<double>(periodic ? length : length - 1);
  fill(out, [&](int64_t k) { return value(static_cast<double>(k) / n); });
}

double turn(double x) { return std::cos(2 * std::numbers::pi * x); }

// The modified Bessel function of order 0 by its power series (Abramowitz and Stegun, 9.6.12), whose terms are all
// positive.
double bessel_i0(double x) {
  double quarter = x * x / 4, term = 1, sum = 1;
  for (int k = 1; k < 1000 && term > sum * 1e-17; ++k) {
    term *= quarter / (static_cast<double>(k) * static_cast<double>(k));
    sum += term;
  }
  return sum;
}

}  // namespace

void hann_window(int64_t, bool periodic, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  fill_window(out, periodic, [](double x) { return 0.5 - 0.5 * turn(x); });
}

void hamming_window(int64_t, bool periodic, double alpha, double beta, std::optional<DType>, std::optional<Device>,
                    const Tensor& out) {
  fill_window(out, periodic, [=](double x) { return alpha - beta * turn(x); });
}

void blackman_window(int64_t, bool periodic, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  fill_window(out, periodic, [](double x) { return 0.42 - 0.5 * turn(x) + 0.08 * turn(2 * x); });
}

void bartlett_window(int64_t, bool periodic, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  fill_window(out, periodic, [](double x) { return 1 - std::abs(2 * x - 1); });
}

void kaiser_window(int64_t, bool periodic, double beta, std::optional<DType>, std::optional<Device>,
                   const Tensor& out) {
  double scale = bessel_i0(beta);
  fill_window(out, periodic, [=](double x) {
    double y = 2 * x - 1;
    return bessel_i0(beta * std::sqrt(std::max(0.0, 1 - y * y))) / scale;
  });
}

void fftfreq(int64_t n, double d, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  double step = 1 / (static_cast<double>(n) * d);
  fill(out, [=](int64_t k) { return static_cast<double>(k < (n + 1) / 2 ? k : k - n) * step; });
}

void rfftfreq(int64_t n, double d, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  double step = 1 / (static_cast<double>(n) * d);
  fill(out, [=](int64_t k) { return static_cast<double>(k) * step; });
}

}  // namespace tapegrad::cpu
