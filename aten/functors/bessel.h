// Bessel functions of orders 0 and 1, the Airy function, and their scaled relatives; all computed in double.
//
// Written from the formulas of the NIST Digital Library of Mathematical Functions (DLMF, https://dlmf.nist.gov), whose
// numbers stand at each of them. Absolute errors are below 1e-14, relative ones of the modified functions, too. Every
// loop has a bound that does not depend on the argument.
#pragma once

#include "tapegrad/aten/functors/bessel_series.h"
#include "tapegrad/aten/functors/math.h"

namespace tapegrad::fn {

namespace bessel {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// e^x may overflow where the product does not.
TG_HD inline double unscaled(double scaled, double x) {
  const double half = math::exp(math::magnitude(x) / 2), value = scaled * half * half;
  return math::magnitude(x) > 800 ? math::copysign(kInfinity, scaled) : value;
}
template <class T>
TG_HD inline double i0(double x) {
  return unscaled(scaled_bessel_i<T, 0>(x), x);
}
template <class T>
TG_HD inline double i1(double x) {
  return unscaled(scaled_bessel_i<T, 1>(x), x);
}

// e^x K_order(x) = integral over t >= 0 of exp(-x (cosh t - 1)) cosh(order t) (10.32.9) for x > 0 and any real
// order by the trapezoidal rule, which converges exponentially for such an integrand; the step shrinks with its width.
TG_HD inline double scaled_k_integral(double order, double x) {
  if (x > 1e18) return math::sqrt(math::kPi / 2) / math::sqrt(x);  // (10.40.2): the next term is of the order 1 / x
  const double wide = 0.7 / math::sqrt(x);
  const double h = wide < 0.2 ? wide : 0.2;
  double sum = 0.5;
  for (int k = 1; k < 400; ++k) {
    const double s = math::sinh(k * h / 2);
    const double decay = 2 * x * s * s;  // x (cosh t - 1) without cancellation
    const double term = math::exp(-decay) * math::cosh(order * k * h);
    sum += term;
    if (term < 1e-18 * sum) break;
  }
  return sum * h;
}

TG_HD inline double spherical_j0(double x) {
  const double m = math::magnitude(x);
  if (m == kInfinity) return 0;
  return m < 1e-4 ? 1 - x * x / 6 : math::sin(x) / x;
}

// Ai(x). Near zero Maclaurin's series (9.4.1); right of it through K of order 1/3 (9.6.2); far left of it the
// expansion (9.7.9); between, Airy's integral (9.5.4) along a line where it oscillates little, by the trapezoidal rule.
TG_HD inline double airy_ai(double x) {
  if (x != x) return x;
  if (x >= 1.5) {
    if (x > 110) return 0;
    const double zeta = 2 * x * math::sqrt(x) / 3;
    return math::sqrt(x / 3) / math::kPi * math::exp(-zeta) * scaled_k_integral(1.0 / 3, zeta);
  }
  if (x >= -4.5) {
    constexpr double at_zero = 0.35502805388781723926, slope = 0.25881940379280679840;
    const double cube = x * x * x;
    double f = 1, g = x, sum_f = 1, sum_g = x;
    for (int k = 1; k < 40; ++k) {
      f *= cube / ((3.0 * k - 1) * (3.0 * k));
      g *= cube / ((3.0 * k) * (3.0 * k + 1));
      sum_f += f;
      sum_g += g;
    }
    return at_zero * sum_f - slope * sum_g;
  }
  const double m = -x;
  if (m == kInfinity) return 0;
  if (m < 10) {
    // 1/(2 pi) times the integral over s of exp((a + is)^3 / 3 + m (a + is)), where a = 1/2.
    constexpr double a = 0.5, h = 0.0625;
    const double front = a * a * a / 3 + m * a;
    double sum = math::exp(front) / 2;
    for (int k = 1; k < 160; ++k) {
      const double s = k * h;
      sum += math::exp(front - a * s * s) * math::cos(s * (a * a + m - s * s / 3));
    }
    return sum * h / math::kPi;
  }
  const double zeta = 2 * m * math::sqrt(m) / 3;
  double u = 1, even = 1, odd = 0;
  for (int k = 1; k < 30; ++k) {
    const double next = u * (6.0 * k - 5) * (6.0 * k - 3) * (6.0 * k - 1) / (216.0 * k * (2 * k - 1)) / zeta;
    if (next > u) break;
    u = next;
    if (k % 2 == 1)
      odd += k % 4 == 1 ? u : -u;
    else
      even += k % 4 == 0 ? u : -u;
    if (u < 1e-18) break;
  }
  const double s = math::sin(zeta), c = math::cos(zeta);
  return ((c + s) * even + (s - c) * odd) / (math::sqrt(2 * math::kPi) * math::sqrt(math::sqrt(m)));
}

}  // namespace bessel

#define TG_BESSEL(name, function, cost)                                                        \
  template <class T>                                                                           \
  struct name {                                                                                \
    static constexpr int kCost = cost;                                                         \
    TG_HD T operator()(T x) const { return static_cast<T>(function(static_cast<double>(x))); } \
  };
TG_BESSEL(i0, bessel::i0<T>, 30)
TG_BESSEL(i0e, (bessel::scaled_bessel_i<T, 0>), 20)
TG_BESSEL(i1, bessel::i1<T>, 30)
TG_BESSEL(i1e, (bessel::scaled_bessel_i<T, 1>), 20)
TG_BESSEL(bessel_j0, (bessel::bessel_j<T, 0>), 30)
TG_BESSEL(bessel_j1, (bessel::bessel_j<T, 1>), 30)
TG_BESSEL(bessel_y0, (bessel::bessel_y<T, 0>), 45)
TG_BESSEL(bessel_y1, (bessel::bessel_y<T, 1>), 45)
TG_BESSEL(scaled_modified_bessel_k0, (bessel::bessel_k<T, 0, true>), 45)
TG_BESSEL(scaled_modified_bessel_k1, (bessel::bessel_k<T, 1, true>), 45)
TG_BESSEL(spherical_bessel_j0, bessel::spherical_j0, 10)
TG_BESSEL(airy_ai, bessel::airy_ai, 300)
TG_BESSEL(modified_bessel_k0, (bessel::bessel_k<T, 0, false>), 45)
TG_BESSEL(modified_bessel_k1, (bessel::bessel_k<T, 1, false>), 45)
#undef TG_BESSEL

}  // namespace tapegrad::fn
