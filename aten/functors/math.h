// Scalar mathematics for functors: one set of names over float, double and complex, for host and device.
//
// On the host the functions marked TG_VECTORISED are declared as having vector forms, so that g++ turns a loop
// over them into calls of _ZGVeN16v_expf and the like, which aten/vector_math_x86.cpp and _arm.cpp lead to SLEEF (1
// ulp). Other functions stay scalar calls. Integer arithmetic wraps on overflow, complex products take the plain
// formula (no recovery of infinities from NaN, as in PyTorch).
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tapegrad/c10/tensor/dtype.h"

#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__) && (defined(__x86_64__) || defined(__aarch64__))
#define TG_VECTORISED __attribute__((simd("notinbranch"), const))
#else
#define TG_VECTORISED
#endif

#if !defined(__CUDACC__)
extern "C" {
#define TG_DECLARE(name)                       \
  TG_VECTORISED float name##f(float) noexcept; \
  TG_VECTORISED double name(double) noexcept;
TG_DECLARE(exp)
TG_DECLARE(exp2)
TG_DECLARE(expm1)
TG_DECLARE(log)
TG_DECLARE(log2)
TG_DECLARE(log10)
TG_DECLARE(log1p)
TG_DECLARE(sin)
TG_DECLARE(cos)
TG_DECLARE(tan)
TG_DECLARE(asin)
TG_DECLARE(acos)
TG_DECLARE(atan)
TG_DECLARE(sinh)
TG_DECLARE(cosh)
TG_DECLARE(tanh)
TG_DECLARE(asinh)
TG_DECLARE(acosh)
TG_DECLARE(atanh)
TG_DECLARE(erf)
TG_DECLARE(erfc)
TG_DECLARE(lgamma)
#undef TG_DECLARE
TG_VECTORISED float tg_normal_cdff(float) noexcept;
TG_VECTORISED float tg_gelu_slopef(float) noexcept;
// Short forms, for results of 16 bits.
TG_VECTORISED float tg_short_erff(float) noexcept;
TG_VECTORISED float tg_short_expf(float) noexcept;
TG_VECTORISED float tg_short_logf(float) noexcept;
TG_VECTORISED float tg_short_normal_cdff(float) noexcept;
TG_VECTORISED float powf(float, float) noexcept;
TG_VECTORISED double pow(double, double) noexcept;
TG_VECTORISED float atan2f(float, float) noexcept;
TG_VECTORISED double atan2(double, double) noexcept;
TG_VECTORISED float hypotf(float, float) noexcept;
TG_VECTORISED double hypot(double, double) noexcept;
}

// In a functor of one float: the functor that the CPU's loops over 16-bit numbers use instead, for functions that are
// expensive compared with the conversion.
#define TG_HALF_PRECISION(cost, result)                \
  struct HalfPrecision {                               \
    static constexpr int kCost = cost;                 \
    float operator()(float x) const { return result; } \
  };
#else
#define TG_HALF_PRECISION(cost, result)
#endif

namespace tapegrad::math {

template <class T>
using real_t = typename std::conditional_t<is_complex_type<T>, T, std::complex<T>>::value_type;

inline constexpr double kPi = 3.14159265358979323846;

// Unary functions that C has for both real types; the complex ones come from the C++ library, on devices from
// cuda/pointwise/complex.h.
#define TG_FOR_COMPLEX_FUNCTIONS(X) \
  X(exp)                            \
  X(log)                            \
  X(log10) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(sqrt)
#define TG_REAL(name)                                       \
  TG_HD inline float name(float x) { return ::name##f(x); } \
  TG_HD inline double name(double x) { return ::name(x); }
#define TG_REAL_AND_COMPLEX(name)                        \
  TG_REAL(name)                                          \
  template <class R>                                     \
  TG_HD inline std::complex<R> name(std::complex<R> z) { \
    return std::name(z);                                 \
  }
TG_FOR_COMPLEX_FUNCTIONS(TG_REAL_AND_COMPLEX)
TG_REAL(exp2)
TG_REAL(expm1)
TG_REAL(log2)
TG_REAL(log1p)
TG_REAL(erf)
TG_REAL(erfc)
TG_REAL(floor)
TG_REAL(ceil)
TG_REAL(trunc)
TG_REAL(rint)
TG_REAL(lgamma)
#undef TG_REAL_AND_COMPLEX
#undef TG_REAL

#define TG_REAL2(name)                                                  \
  TG_HD inline float name(float x, float y) { return ::name##f(x, y); } \
  TG_HD inline double name(double x, double y) { return ::name(x, y); }
TG_REAL2(atan2)
TG_REAL2(hypot)
TG_REAL2(fmod)
TG_REAL2(copysign)
#undef TG_REAL2

template <class T>
TG_HD inline bool isnan(T x) {
  if constexpr (is_complex_type<T>)
    return x.real() != x.real() || x.imag() != x.imag();
  else
    return x != x;
}
template <class R>
TG_HD inline R magnitude(R x) {  // |x| of a floating-point number by clearing the sign
  if constexpr (std::is_same_v<R, float>)
    return __builtin_fabsf(x);
  else
    return __builtin_fabs(x);
}
template <class T>
TG_HD inline bool isinf(T x) {
  if constexpr (is_complex_type<T>)
    return isinf(x.real()) || isinf(x.imag());
  else if constexpr (std::is_floating_point_v<T>)
    return magnitude(x) == std::numeric_limits<T>::infinity();
  else
    return false;
}
template <class T>
TG_HD inline bool isfinite(T x) {
  if constexpr (is_complex_type<T>)
    return isfinite(x.real()) && isfinite(x.imag());
  else if constexpr (std::is_floating_point_v<T>)
    return magnitude(x) <= std::numeric_limits<T>::max();
  else
    return true;
}

// Arithmetic that is defined for every type: integers wrap, bool is logic (+ is or, * is and).
template <class T>
TG_HD inline T add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  else
    return a + b;
}
template <class T>
TG_HD inline T sub(T a, T b) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) - static_cast<std::make_unsigned_t<T>>(b));
  else
    return a - b;
}
template <class T>
TG_HD inline T mul(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a && b;
  } else if constexpr (is_complex_type<T>) {
    return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
  } else if constexpr (std::is_integral_v<T>) {
    // Through an unsigned type of at least int's width: narrower ones would be promoted to a signed int.
    using U = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return a * b;
  }
}
// Smith's algorithm for complex numbers: no overflow where the result has none.
// R. L. Smith, Algorithm 116: Complex division, Communications of the ACM 5 (1962).
template <class T>
TG_HD inline T div(T a, T b) {
  if constexpr (is_complex_type<T>) {
    using R = typename T::value_type;
    const R c = b.real(), d = b.imag();
    if (magnitude(c) >= magnitude(d)) {
      if (c == R(0) && d == R(0)) return T(a.real() / magnitude(c), a.imag() / magnitude(d));
      const R ratio = d / c;
      const R scale = R(1) / (c + d * ratio);
      return T((a.real() + a.imag() * ratio) * scale, (a.imag() - a.real() * ratio) * scale);
    }
    const R ratio = c / d;
    const R scale = R(1) / (c * ratio + d);
    return T((a.real() * ratio + a.imag()) * scale, (a.imag() * ratio - a.real()) * scale);
  } else {
    return a / b;
  }
}
template <class T>
TG_HD inline T neg(T a) {
  if constexpr (std::is_integral_v<T>)
    return sub(T(0), a);
  else
    return -a;
}
// |z| for complex, |x| otherwise; the most negative integer stays as it is.
template <class T>
TG_HD inline real_t<T> abs(T a) {
  if constexpr (is_complex_type<T>)
    return hypot(a.real(), a.imag());
  else if constexpr (std::is_floating_point_v<T>)
    return magnitude(a);
  else if constexpr (std::is_unsigned_v<T>)
    return a;
  else
    return a < 0 ? neg(a) : a;
}
template <class T>
TG_HD inline T conj(T a) {
  if constexpr (is_complex_type<T>)
    return T(a.real(), -a.imag());
  else
    return a;
}
// The larger and the smaller one; NaN wins.
template <class T>
TG_HD inline T maximum(T a, T b) {
  const T larger = a > b ? a : b;  // b where one is NaN
  if constexpr (std::is_floating_point_v<T>)
    return a != a ? a : larger;
  else
    return larger;
}
template <class T>
TG_HD inline T minimum(T a, T b) {
  const T smaller = a < b ? a : b;
  if constexpr (std::is_floating_point_v<T>)
    return a != a ? a : smaller;
  else
    return smaller;
}

// x limited to [low, high]; where low > high it is high. NaN wins. (As minimum of maximum g++ makes branches of it.)
template <class T>
TG_HD inline T clamp(T x, T low, T high) {
  const T raised = low > x ? low : x;  // NaN where x is
  const T limited = high < raised ? high : raised;
  if constexpr (std::is_floating_point_v<T>)
    return __builtin_isunordered(low, high) ? low + high : limited;  // of numbers, once for all elements
  else
    return limited;
}

// The distribution function of the normal distribution, near 0 with an error in absolute terms only, and its sum with
// x times the density: gelu(x) is x times the first, and its derivative the second.
TG_HD inline double normal_cdf(double x) { return 0.5 * (1 + erf(x * 0.70710678118654752440)); }
TG_HD inline double gelu_slope(double x) { return normal_cdf(x) + x * (exp(-0.5 * x * x) * 0.39894228040143267794); }
#if !defined(__CUDACC__)
inline float normal_cdf(float x) { return ::tg_normal_cdff(x); }
inline float gelu_slope(float x) { return ::tg_gelu_slopef(x); }
#else
TG_HD inline float normal_cdf(float x) { return 0.5F * (1 + erf(x * 0.70710678F)); }
TG_HD inline float gelu_slope(float x) { return normal_cdf(x) + x * (exp(-0.5F * x * x) * 0.39894228F); }
#endif

template <class R>
TG_HD inline std::complex<R> log2(std::complex<R> z) {
  const std::complex<R> l = std::log(z);
  const R scale = R(1.44269504088896340736);
  return {l.real() * scale, l.imag() * scale};
}
template <class R>
TG_HD inline std::complex<R> exp2(std::complex<R> z) {
  const R scale = R(0.693147180559945309417);
  return std::exp(std::complex<R>(z.real() * scale, z.imag() * scale));
}
// e^z - 1 = expm1(x) cos(y) - 2 sin(y/2)^2 + i e^x sin(y), without cancellation for small z.
template <class R>
TG_HD inline std::complex<R> expm1(std::complex<R> z) {
  const R s = std::sin(z.imag() / 2);
  const R e = std::expm1(z.real());
  return {e * std::cos(z.imag()) - 2 * s * s, (e + 1) * std::sin(z.imag())};
}
// log(1 + z): the real part through log1p(x (2 + x) + y^2) / 2, accurate near zero.
template <class R>
TG_HD inline std::complex<R> log1p(std::complex<R> z) {
  const R x = z.real(), y = z.imag();
  if (magnitude(x) < R(0.5) && magnitude(y) < R(0.5))
    return {std::log1p(x * (2 + x) + y * y) / 2, std::atan2(y, 1 + x)};
  return std::log(std::complex<R>(1 + x, y));
}

TG_HD inline float pow(float a, float b) { return ::powf(a, b); }
TG_HD inline double pow(double a, double b) { return ::pow(a, b); }
template <class R>
TG_HD inline std::complex<R> pow(std::complex<R> a, std::complex<R> b) {
  if (b == std::complex<R>(0)) return {R(1), R(0)};
  return std::pow(a, b);
}
// Integer powers by repeated squaring; a negative exponent truncates 1 / a^n to an integer.
template <class T>
  requires std::is_integral_v<T>
TG_HD inline T pow(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || !b;
  } else {
    if constexpr (std::is_signed_v<T>) {
      if (b < 0) {
        if (a == 1) return 1;
        if (a == -1) return (b & 1) != 0 ? T(-1) : T(1);
        return 0;
      }
    }
    T result = 1;
    while (b != 0) {
      if ((b & 1) != 0) result = mul(result, a);
      a = mul(a, a);
      b = static_cast<T>(b >> 1);
    }
    return result;
  }
}

}  // namespace tapegrad::math
