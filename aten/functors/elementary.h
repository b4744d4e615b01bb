// Exponentials, logarithms, trigonometry, rounding.
#pragma once

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::fn {

#define TG_FUNCTION(name, cost, arguments, result)        \
  template <class T>                                      \
  struct name {                                           \
    static constexpr int kCost = cost;                    \
    TG_HD T operator() arguments const { return result; } \
  };
TG_FUNCTION(exp2, 6, (T x), math::exp2(x))
TG_FUNCTION(expm1, 8, (T x), math::expm1(x))
TG_FUNCTION(log2, 8, (T x), math::log2(x))
TG_FUNCTION(log10, 8, (T x), math::log10(x))
TG_FUNCTION(sqrt, 2, (T x), math::sqrt(x))
TG_FUNCTION(sin, 8, (T x), math::sin(x))
TG_FUNCTION(cos, 8, (T x), math::cos(x))
TG_FUNCTION(tan, 12, (T x), math::tan(x))
TG_FUNCTION(asin, 10, (T x), math::asin(x))
TG_FUNCTION(acos, 10, (T x), math::acos(x))
TG_FUNCTION(atan, 10, (T x), math::atan(x))
TG_FUNCTION(sinh, 12, (T x), math::sinh(x))
TG_FUNCTION(cosh, 12, (T x), math::cosh(x))
TG_FUNCTION(tanh, 12, (T x), math::tanh(x))
TG_FUNCTION(atanh, 14, (T x), math::atanh(x))
TG_FUNCTION(erfc, 14, (T x), math::erfc(x))

// SLEEF's log1p gives infinity close to the largest number, its asinh and acosh from the root of that on: there
// log(1 + x) is log(x / 1024) + log 1024, and the others log(2 x). Asking `far` twice, g++ would take two logarithms.
template <class T>
TG_HD inline T log1p_of(T x) {
  if constexpr (is_complex_type<T>) {
    return math::log1p(x);
  } else {
    const T scaled = x > T(1e30) ? x * T(0.0009765625) : x;
    return math::log1p(scaled) + (scaled != x ? T(6.93147180559945309417) : T(-0.0));
  }
}
template <class T>
struct asinh {
  static constexpr int kCost = 22;
  TG_HD T operator()(T x) const {
    if constexpr (is_complex_type<T>) {
      return math::asinh(x);
    } else {
      const T far = math::copysign(math::log(math::magnitude(x)) + T(0.69314718055994530942), x);
      const T near = math::asinh(x);
      return math::magnitude(x) > T(1e10) ? far : near;
    }
  }
};
template <class T>
struct acosh {
  static constexpr int kCost = 22;
  TG_HD T operator()(T x) const {
    if constexpr (is_complex_type<T>) {
      return math::acosh(x);
    } else {
      const T far = math::log(x) + T(0.69314718055994530942), near = math::acosh(x);
      return x > T(1e10) ? far : near;
    }
  }
};

TG_FUNCTION(log1p, 10, (T x), log1p_of(x))
TG_FUNCTION(rsqrt, 2, (T x), math::div(T(1), math::sqrt(x)))
TG_FUNCTION(atan2, 12, (T y, T x), math::atan2(y, x))
TG_FUNCTION(hypot, 6, (T a, T b), math::hypot(a, b))
TG_FUNCTION(copysign, 1, (T a, T b), math::copysign(a, b))
#undef TG_FUNCTION

#define TG_UNARY_WITH_SHORT(name, cost, short_cost, short_form) \
  template <class T>                                            \
  struct name {                                                 \
    static constexpr int kCost = cost;                          \
    TG_HD T operator()(T x) const { return math::name(x); }     \
    TG_HALF_PRECISION(short_cost, short_form(x))                \
  };
TG_UNARY_WITH_SHORT(erf, 12, 8, tg_short_erff)
TG_UNARY_WITH_SHORT(exp, 6, 6, tg_short_expf)
TG_UNARY_WITH_SHORT(log, 8, 6, tg_short_logf)
#undef TG_UNARY_WITH_SHORT

// Rounding leaves integers alone.
#define TG_ROUND(name, function)           \
  template <class T>                       \
  struct name {                            \
    TG_HD T operator()(T x) const {        \
      if constexpr (std::is_integral_v<T>) \
        return x;                          \
      else                                 \
        return math::function(x);          \
    }                                      \
  };
TG_ROUND(floor, floor)
TG_ROUND(ceil, ceil)
TG_ROUND(trunc, trunc)
TG_ROUND(round, rint)  // halves to the even neighbour
#undef TG_ROUND

// Rounds to a number of decimal places (to tens, hundreds, ... for negative ones).
template <class T>
struct round_decimals {
  int64_t decimals;
  TG_HD T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return x;
    } else {
      T ten = 1;
      for (int64_t i = decimals < 0 ? -decimals : decimals; i > 0; --i) ten *= T(10);
      return decimals < 0 ? math::rint(x / ten) * ten : math::rint(x * ten) / ten;
    }
  }
};
template <class T>
struct frac {
  TG_HD T operator()(T x) const { return x - math::trunc(x); }
};

// x 2^n for an integer n, rounded once: 2^n alone may lie outside of T. What is beyond the bounds of n gives 0 or
// infinity for every x.
template <class T>
struct ldexp {
  TG_HD T operator()(T x, T n) const {
    const T bound = T(4096);
    return std::ldexp(x, static_cast<int>(n < -bound ? -bound : n > bound ? bound : n));
  }
};

// The angle of a number in the complex plane: 0 or pi for a real one.
template <class T>
struct angle {
  static constexpr int kCost = 4;
  TG_HD math::real_t<T> operator()(T x) const {
    if constexpr (is_complex_type<T>)
      return math::atan2(x.imag(), x.real());
    else
      return x < T(0) ? T(math::kPi) : x == x ? T(0) : x;
  }
};
template <class T>
struct conj_physical {
  TG_HD T operator()(T x) const { return math::conj(x); }
};
template <class T>
struct deg2rad {
  TG_HD T operator()(T x) const { return x * T(math::kPi / 180); }
};
template <class T>
struct rad2deg {
  TG_HD T operator()(T x) const { return x * T(180 / math::kPi); }
};

}  // namespace tapegrad::fn
