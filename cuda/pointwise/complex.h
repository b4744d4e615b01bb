// Complex elementary functions for kernels: the C++ library's are functions of the host. Specialisations of the names
// in aten/functors/math.h, so that functors find them. Branch cuts and formulas of the inverse functions are those of
// W. Kahan, Branch cuts for complex elementary functions (The State of the Art in Numerical Analysis, 1987).
#pragma once

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::math {
namespace device {

template <class R>
using C = std::complex<R>;

template <class R>
TG_HD inline C<R> exp(C<R> z) {
  const R size = math::exp(z.real());
  if (z.imag() == R(0)) return {size, z.imag()};
  if (size == R(0)) return {R(0), R(0)};
  return {size * math::cos(z.imag()), size * math::sin(z.imag())};
}
// log|z| without overflow, and without cancellation where |z| is near 1.
template <class R>
TG_HD inline R log_size(C<R> z) {
  R a = math::magnitude(z.real()), b = math::magnitude(z.imag());
  if (a < b) {
    const R c = a;
    a = b;
    b = c;
  }
  if (a > R(0.5) && a < R(2)) return math::log1p((a - 1) * (a + 1) + b * b) / 2;
  return math::log(math::hypot(a, b));
}
template <class R>
TG_HD inline C<R> log(C<R> z) {
  return {log_size(z), math::atan2(z.imag(), z.real())};
}
template <class R>
TG_HD inline C<R> sqrt(C<R> z) {
  const R x = z.real(), y = z.imag();
  if (x == R(0) && y == R(0)) return {R(0), y};
  if (math::isinf(y)) return {std::numeric_limits<R>::infinity(), y};
  // Halved twice where |z| may overflow, as sqrt(z) = 2 sqrt(z / 4).
  const bool large =
      math::magnitude(x) > std::numeric_limits<R>::max() / 4 || math::magnitude(y) > std::numeric_limits<R>::max() / 4;
  const R u = large ? x / 4 : x, v = large ? y / 4 : y;
  const R root = math::sqrt((math::magnitude(u) + math::hypot(u, v)) / 2) * (large ? R(2) : R(1));
  const R other = math::magnitude(y) / (2 * root);
  if (x >= 0) return {root, math::copysign(other, y)};
  return {other, math::copysign(root, y)};
}
template <class R>
TG_HD inline C<R> sinh(C<R> z) {
  if (z.imag() == R(0)) return {math::sinh(z.real()), z.imag()};
  return {math::sinh(z.real()) * math::cos(z.imag()), math::cosh(z.real()) * math::sin(z.imag())};
}
template <class R>
TG_HD inline C<R> cosh(C<R> z) {
  if (z.imag() == R(0)) return {math::cosh(z.real()), z.real() * z.imag()};
  return {math::cosh(z.real()) * math::cos(z.imag()), math::sinh(z.real()) * math::sin(z.imag())};
}
template <class R>
TG_HD inline C<R> tanh(C<R> z) {
  const R x = z.real(), y = z.imag();
  if (math::magnitude(x) > R(20))
    return {math::copysign(R(1), x), 4 * math::sin(y) * math::cos(y) * math::exp(-2 * math::magnitude(x))};
  const R t = math::tan(y), beta = 1 + t * t, s = math::sinh(x), rho = math::sqrt(1 + s * s);
  if (math::isinf(t)) return {rho / s, 1 / t};
  const R below = 1 + beta * s * s;
  return {beta * rho * s / below, t / below};
}
// i f(-i z) and the like: the circular functions from the hyperbolic ones.
template <class R>
TG_HD inline C<R> sin(C<R> z) {
  const C<R> w = device::sinh(C<R>(-z.imag(), z.real()));
  return {w.imag(), -w.real()};
}
template <class R>
TG_HD inline C<R> cos(C<R> z) {
  return device::cosh(C<R>(-z.imag(), z.real()));
}
template <class R>
TG_HD inline C<R> tan(C<R> z) {
  const C<R> w = device::tanh(C<R>(-z.imag(), z.real()));
  return {w.imag(), -w.real()};
}
// The parts of conj(a) b.
template <class R>
TG_HD inline R real_of(C<R> a, C<R> b) {
  return a.real() * b.real() + a.imag() * b.imag();
}
template <class R>
TG_HD inline R imag_of(C<R> a, C<R> b) {
  return a.real() * b.imag() - a.imag() * b.real();
}
template <class R>
TG_HD inline C<R> asin(C<R> z) {
  const C<R> minus = device::sqrt(C<R>(1 - z.real(), -z.imag())), plus = device::sqrt(C<R>(1 + z.real(), z.imag()));
  return {math::atan2(z.real(), minus.real() * plus.real() - minus.imag() * plus.imag()),
          math::asinh(imag_of(minus, plus))};
}
template <class R>
TG_HD inline C<R> acos(C<R> z) {
  const C<R> minus = device::sqrt(C<R>(1 - z.real(), -z.imag())), plus = device::sqrt(C<R>(1 + z.real(), z.imag()));
  return {2 * math::atan2(minus.real(), plus.real()), math::asinh(imag_of(plus, minus))};
}
template <class R>
TG_HD inline C<R> acosh(C<R> z) {
  const C<R> minus = device::sqrt(C<R>(z.real() - 1, z.imag())), plus = device::sqrt(C<R>(z.real() + 1, z.imag()));
  return {math::asinh(real_of(minus, plus)), 2 * math::atan2(minus.imag(), plus.real())};
}
// f of i z, divided by i.
template <class R, class F>
TG_HD inline C<R> turned(C<R> z, const F& f) {
  const C<R> w = f(C<R>(-z.imag(), z.real()));
  return {w.imag(), -w.real()};
}
template <class R>
TG_HD inline C<R> asinh(C<R> z) {
  return turned(z, [](C<R> x) { return device::asin(x); });
}
template <class R>
TG_HD inline C<R> atanh(C<R> z) {
  const R x = z.real(), y = z.imag();
  return {
      math::copysign(
          math::log1p(4 * math::magnitude(x) / ((1 - math::magnitude(x)) * (1 - math::magnitude(x)) + y * y)) / 4, x),
      math::atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2};
}
template <class R>
TG_HD inline C<R> atan(C<R> z) {
  return turned(z, [](C<R> x) { return device::atanh(x); });
}
template <class R>
TG_HD inline C<R> scaled_log(C<R> z, R factor) {
  const C<R> w = device::log(z);
  return {w.real() * factor, w.imag() * factor};
}
template <class R>
TG_HD inline C<R> log10(C<R> z) {
  return scaled_log(z, R(0.43429448190325182765));
}
template <class R>
TG_HD inline C<R> log2(C<R> z) {
  return scaled_log(z, R(1.44269504088896340736));
}
template <class R>
TG_HD inline C<R> exp2(C<R> z) {
  return device::exp(C<R>(z.real() * R(0.693147180559945309417), z.imag() * R(0.693147180559945309417)));
}
template <class R>
TG_HD inline C<R> expm1(C<R> z) {
  const R s = math::sin(z.imag() / 2), e = math::expm1(z.real());
  return {e * math::cos(z.imag()) - 2 * s * s, (e + 1) * math::sin(z.imag())};
}
template <class R>
TG_HD inline C<R> log1p(C<R> z) {
  const R x = z.real(), y = z.imag();
  if (math::magnitude(x) < R(0.5) && math::magnitude(y) < R(0.5))
    return {math::log1p(x * (2 + x) + y * y) / 2, math::atan2(y, 1 + x)};
  return device::log(C<R>(1 + x, y));
}
template <class R>
TG_HD inline C<R> pow(C<R> a, C<R> b) {
  if (b.real() == R(0) && b.imag() == R(0)) return {R(1), R(0)};
  if (a.real() == R(0) && a.imag() == R(0)) return {R(0), R(0)};
  const C<R> l = device::log(a);
  return device::exp(C<R>(b.real() * l.real() - b.imag() * l.imag(), b.real() * l.imag() + b.imag() * l.real()));
}

}  // namespace device

#define TG_COMPLEX(name)                                   \
  template <>                                              \
  TG_HD inline complex64_t name<float>(complex64_t z) {    \
    return device::name(z);                                \
  }                                                        \
  template <>                                              \
  TG_HD inline complex128_t name<double>(complex128_t z) { \
    return device::name(z);                                \
  }
TG_FOR_COMPLEX_FUNCTIONS(TG_COMPLEX)
TG_COMPLEX(log2)
TG_COMPLEX(exp2)
TG_COMPLEX(expm1)
TG_COMPLEX(log1p)
#undef TG_COMPLEX
template <>
TG_HD inline complex64_t pow<float>(complex64_t a, complex64_t b) {
  return device::pow(a, b);
}
template <>
TG_HD inline complex128_t pow<double>(complex128_t a, complex128_t b) {
  return device::pow(a, b);
}

}  // namespace tapegrad::math
