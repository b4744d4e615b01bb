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

inline constexpr double kEuler = 0.57721566490153286061;
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
// Up to 1 the series (10.31.1, 10.31.2), whose logarithm the integral sees late.
TG_HD inline double scaled_k(int order, double x) {
  if (!(x > 0)) return x == 0 ? kInfinity : kNaN;
  if (x == kInfinity) return 0;
  if (x > 1) return scaled_k_integral(order, x);
  const double quarter = x * x / 4;
  double term = 1, harmonic = 0, i = 0,
         rest = 0;  // of I0, or I1 / (x / 2), and of the sum with psi(k + 1) + psi(k + 1 + order)
  for (int k = 0; k < 20; ++k) {
    if (k > 0) {
      term *= quarter / (static_cast<double>(k) * (k + order));
      harmonic += 1.0 / k;
    }
    i += term;
    rest += term * (order == 0 ? harmonic : 2 * harmonic + 1.0 / (k + 1) - 2 * kEuler);
  }
  const double sum =
      order == 0 ? rest - (math::log(x / 2) + kEuler) * i : 1 / x + math::log(x / 2) * x / 2 * i - x / 4 * rest;
  return math::exp(x) * sum;
}
TG_HD inline double scaled_k0(double x) { return scaled_k(0, x); }
TG_HD inline double scaled_k1(double x) { return scaled_k(1, x); }
TG_HD inline double k0(double x) { return scaled_k0(x) * math::exp(-x); }
TG_HD inline double k1(double x) { return scaled_k1(x) * math::exp(-x); }

// J0, J1, Y0 and Y1 at one argument x > 0.
struct Four {
  double j0, j1, y0, y1;
};
// Up to 25: J of all orders by backward recurrence (10.74(iv), Miller's algorithm), normalised by
// J0 + 2 (J2 + J4 + ...) = 1 (10.23.3), and Y from Neumann's series in them (10.23.2 and its derivative).
TG_HD inline Four by_recurrence(double x) {
  double above = 0, here = 1e-290, norm = 0, even = 0, odd = 0;
  double j1 = 0;
  for (int n = 96; n > 0; --n) {  // `here` is J_n up to a factor
    if (n % 2 == 0) {
      const int k = n / 2;
      norm += 2 * here;
      even += (k % 2 == 0 ? here : -here) / k;
    } else if (n > 1) {
      const int k = n / 2;
      odd += (k % 2 == 0 ? here : -here) * n / (static_cast<double>(k) * (k + 1));
    } else {
      j1 = here;
    }
    const double below = 2 * n / x * here - above;
    above = here;
    here = below;
    if (math::magnitude(here) > 1e150) {
      here *= 1e-150;
      above *= 1e-150;
      norm *= 1e-150;
      even *= 1e-150;
      odd *= 1e-150;
      j1 *= 1e-150;
    }
  }
  norm += here;
  const double j0 = here / norm;
  j1 /= norm;
  const double l = math::log(x / 2) + kEuler;
  const double y0 = 2 / math::kPi * (l * j0 - 2 * even / norm);
  const double y1 = 2 / math::kPi * ((l - 1) * j1 - j0 / x - odd / norm);
  return {j0, j1, y0, y1};
}
// Above: Hankel's expansions (10.17.3, 10.17.4).
TG_HD inline void hankel(int order, double x, double& j, double& y) {
  const double mu = 4.0 * order * order;
  double term = 1, p = 1, q = 0;
  for (int k = 1; k < 60; ++k) {
    const double o = 2.0 * k - 1;
    const double next = term * (mu - o * o) / (k * 8 * x);
    if (math::magnitude(next) > math::magnitude(term)) break;
    term = next;
    if (k % 2 == 1)
      q += k % 4 == 1 ? term : -term;
    else
      p += k % 4 == 0 ? term : -term;
    if (math::magnitude(term) < 1e-18) break;
  }
  // x - pi/4 and x - 3 pi/4 from the sine and cosine of x, which know x exactly.
  const double s = math::sin(x), c = math::cos(x), scale = 1 / math::sqrt(math::kPi * x);
  const double cosine = order == 0 ? c + s : s - c, sine = order == 0 ? s - c : -(s + c);
  j = scale * (p * cosine - q * sine);
  y = scale * (p * sine + q * cosine);
}
TG_HD inline Four positive(double x) {
  if (x <= 25) return by_recurrence(x);
  if (x == kInfinity) return {0, 0, 0, 0};
  Four r;
  hankel(0, x, r.j0, r.y0);
  hankel(1, x, r.j1, r.y1);
  return r;
}
TG_HD inline double y0(double x) {
  if (!(x > 0)) return x == 0 ? -kInfinity : kNaN;
  return x < 1e-8 ? 2 / math::kPi * (math::log(x / 2) + kEuler) : positive(x).y0;
}
TG_HD inline double y1(double x) {
  if (!(x > 0)) return x == 0 ? -kInfinity : kNaN;
  return x < 1e-8 ? -2 / (math::kPi * x) : positive(x).y1;
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
TG_BESSEL(bessel_y0, bessel::y0, 200)
TG_BESSEL(bessel_y1, bessel::y1, 200)
TG_BESSEL(scaled_modified_bessel_k0, bessel::scaled_k0, 300)
TG_BESSEL(scaled_modified_bessel_k1, bessel::scaled_k1, 300)
TG_BESSEL(spherical_bessel_j0, bessel::spherical_j0, 10)
TG_BESSEL(airy_ai, bessel::airy_ai, 300)
TG_BESSEL(modified_bessel_k0, bessel::k0, 300)
TG_BESSEL(modified_bessel_k1, bessel::k1, 300)
#undef TG_BESSEL

}  // namespace tapegrad::fn
