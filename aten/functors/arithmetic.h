// Sums, products, quotients, powers and their relatives.
#pragma once

#include <bit>

#include "tapegrad/aten/functors/math.h"

#if defined(__x86_64__) && !defined(__CUDACC__)
// The vector forms are our own (aten/vector_math_cpu.cpp).
extern "C" TG_VECTORISED float fmodf(float, float) noexcept;
extern "C" TG_VECTORISED double fmod(double, double) noexcept;
#endif

namespace tapegrad::fn {

template <class T>
struct add {
  T alpha;
  TG_HD T operator()(T a, T b) const { return math::add(a, math::mul(alpha, b)); }
};
template <class T>
struct sub {
  T alpha;
  TG_HD T operator()(T a, T b) const { return math::sub(a, math::mul(alpha, b)); }
};
template <class T>
struct rsub {
  T alpha;
  TG_HD T operator()(T a, T b) const { return math::sub(b, math::mul(alpha, a)); }
};
template <class T>
struct mul {
  TG_HD T operator()(T a, T b) const { return math::mul(a, b); }
};
template <class T>
struct true_divide {
  TG_HD T operator()(T a, T b) const { return math::div(a, b); }
};

// Integer division by zero has no value to return. It is found in the loop, since a pass over the divisor
// before would cost as much as the operator. Kernels of a device cannot throw: they give 0, and record that a divisor
// of a functor with kDividesIntegers was 0 (cuda/pointwise/rows.h).
[[noreturn]] TG_API TG_COLD void throw_zero_division();
#if defined(__CUDACC__) || defined(TG_CUDA_SIMULATED)
#define TG_ZERO_DIVISION return T(0)
#else
#define TG_ZERO_DIVISION throw_zero_division()
#endif

// f(a, b) for b that is neither 0 nor -1, by which the most negative number cannot be divided: that gives
// `by_minus_one`.
template <class T, class F>
TG_HD inline T divide_integers(T a, T b, T by_minus_one, const F& f) {
  if (b == 0) TG_ZERO_DIVISION;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return by_minus_one;
  return f(a, b);
}

template <class T, int kCostOf>
struct division {
  static constexpr bool kDividesIntegers = std::is_integral_v<T>;
  static constexpr int kCost = kCostOf;
};
template <class T>
struct trunc_divide : division<T, 2> {
  TG_HD T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return divide_integers(a, b, math::neg(a), [](T x, T y) { return static_cast<T>(x / y); });
    else
      return math::trunc(a / b);
  }
};
// Rounds towards minus infinity. Floating point: the quotient that fits the remainder, as Python's //.
template <class T>
struct floor_divide : division<T, 4> {
  TG_HD T operator()(T a, T b) const {
    if constexpr (std::is_unsigned_v<T>) {
      return trunc_divide<T>{}(a, b);
    } else if constexpr (std::is_integral_v<T>) {
      return divide_integers(a, b, math::neg(a), [](T x, T y) {
        const T quotient = static_cast<T>(x / y), rest = static_cast<T>(x % y);
        return rest != 0 && (rest < 0) != (y < 0) ? static_cast<T>(quotient - 1) : quotient;
      });
    } else {
      if (b == 0) return a / b;
      const T rest = math::fmod(a, b);
      T quotient = (a - rest) / b;
      if (rest != 0 && (b < 0) != (rest < 0)) quotient -= T(1);
      if (quotient == 0) return math::copysign(T(0), a / b);
      const T floored = math::floor(quotient);
      return quotient - floored > T(0.5) ? floored + T(1) : floored;
    }
  }
};
template <class T>
struct fmod : division<T, 8> {
  TG_HD T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return divide_integers(a, b, T(0), [](T x, T y) { return static_cast<T>(x % y); });
    else
      return math::fmod(a, b);
  }
};
// The remainder with the sign of the divisor, as Python's %.
template <class T>
struct remainder : division<T, 8> {
  TG_HD T operator()(T a, T b) const {
    const T rest = fmod<T>{}(a, b);
    if constexpr (std::is_unsigned_v<T>)
      return rest;
    else
      return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
  }
};
template <class T>
struct pow {
  static constexpr int kCost = 16;
  TG_HD T operator()(T a, T b) const {
    const T power = math::pow(a, b);
    if constexpr (std::is_same_v<T, double>)
      return b == T(1) ? a : power;  // SLEEF's power of the largest number is infinite
    else
      return power;
  }
};

// Euclid's algorithm on magnitudes, which fit the unsigned type for the most negative number, too.
template <class T>
struct gcd {
  static constexpr int kCost = 40;
  TG_HD T operator()(T a, T b) const {
    using U = std::make_unsigned_t<T>;
    U x = a < 0 ? static_cast<U>(U(0) - static_cast<U>(a)) : static_cast<U>(a);
    U y = b < 0 ? static_cast<U>(U(0) - static_cast<U>(b)) : static_cast<U>(b);
    while (y != 0) {
      const U rest = static_cast<U>(x % y);
      x = y;
      y = rest;
    }
    return static_cast<T>(x);
  }
};
template <class T>
struct lcm {
  static constexpr int kCost = 40;
  TG_HD T operator()(T a, T b) const {
    const T divisor = gcd<T>{}(a, b);
    return divisor == 0 ? T(0) : math::abs(math::mul(trunc_divide<T>{}(a, divisor), b));
  }
};
template <class T>
struct nextafter {
  static constexpr int kCost = 4;
  // Neighbours of one sign differ by one in their bits.
  TG_HD T operator()(T a, T b) const {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    const T moved = std::bit_cast<T>(std::bit_cast<Bits>(a) + Bits((a < b) == (a > T(0)) ? 1 : -1));
    const T from_zero = math::copysign(std::numeric_limits<T>::denorm_min(), b);
    const T result = a == b ? b : a == T(0) ? from_zero : moved;
    return (a != a) | (b != b) ? a + b : result;
  }
};

template <class T>
struct neg {
  TG_HD T operator()(T a) const { return math::neg(a); }
};
template <class T>
struct abs {
  TG_HD math::real_t<T> operator()(T a) const { return math::abs(a); }
};
template <class T>
struct sign {
  TG_HD T operator()(T a) const {
    if constexpr (std::is_same_v<T, bool>)
      return a;
    else if constexpr (std::is_floating_point_v<T>)
      return T(a > 0) - T(a < 0);  // 0 for NaN
    else
      return static_cast<T>((a > 0) - (a < 0));
  }
};
// z / |z|, and 0 for 0.
template <class T>
struct sgn {
  TG_HD T operator()(T a) const {
    if constexpr (is_complex_type<T>) {
      const auto m = math::abs(a);
      if (m == 0) return T(0);
      return T(a.real() / m, a.imag() / m);
    } else {
      return sign<T>{}(a);
    }
  }
};
template <class T>
struct square {
  TG_HD T operator()(T a) const { return math::mul(a, a); }
};
template <class T>
struct cube {
  TG_HD T operator()(T a) const { return math::mul(math::mul(a, a), a); }
};
template <class T>
struct reciprocal {
  TG_HD T operator()(T a) const { return math::div(T(1), a); }
};
template <class T>
struct identity {
  TG_HD T operator()(T a) const { return a; }
};

template <class T>
struct maximum {
  TG_HD T operator()(T a, T b) const { return math::maximum(a, b); }
};
template <class T>
struct minimum {
  TG_HD T operator()(T a, T b) const { return math::minimum(a, b); }
};
// As maximum and minimum, but NaN loses.
template <class T, bool kLargest>
struct extreme_number {
  TG_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return (kLargest ? a >= b : a <= b) | (b != b) ? a : b;
    else
      return (kLargest ? a > b : a < b) ? a : b;
  }
};
template <class T>
struct fmax : extreme_number<T, true> {};
template <class T>
struct fmin : extreme_number<T, false> {};
// NaN in the input or a bound stays NaN; where low > high the result is high.
template <class T>
struct clamp {
  TG_HD T operator()(T x, T low, T high) const { return math::clamp(x, low, high); }
};
// The gradient passes where low <= x <= high.
template <class T>
struct clamp_backward {
  TG_HD T operator()(T grad, T x, T low, T high) const { return (x >= low) & (x <= high) ? grad : T(0); }
};

template <class T>
struct lerp {
  TG_HD T operator()(T a, T b, T weight) const {
    // From the nearer end, so that weight 1 gives b exactly.
    const T d = b - a;
    if constexpr (is_complex_type<T>)
      return math::abs(weight) < 0.5 ? a + math::mul(weight, d) : b - math::mul(d, T(1) - weight);
    else
      return weight < T(0.5) ? a + weight * d : b - d * (T(1) - weight);
  }
};
template <class T>
struct addcmul {
  T value;
  TG_HD T operator()(T a, T b, T c) const { return math::add(a, math::mul(value, math::mul(b, c))); }
};
template <class T>
struct addcdiv {
  T value;
  TG_HD T operator()(T a, T b, T c) const { return math::add(a, math::mul(value, math::div(b, c))); }
};

template <class T>
struct bitwise_and {
  TG_HD T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
template <class T>
struct bitwise_or {
  TG_HD T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
template <class T>
struct bitwise_xor {
  TG_HD T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};
template <class T>
struct bitwise_not {
  TG_HD T operator()(T a) const {
    if constexpr (std::is_same_v<T, bool>)
      return !a;
    else
      return static_cast<T>(~a);
  }
};
// A shift by the width or more gives what shifting bit by bit would.
template <class T>
struct bitwise_left_shift {
  TG_HD T operator()(T a, T b) const {
    using U = std::make_unsigned_t<T>;
    const bool inside = static_cast<U>(b) < sizeof(T) * 8;
    return inside ? static_cast<T>(static_cast<uint64_t>(static_cast<U>(a)) << (b & 63)) : T(0);
  }
};
template <class T>
struct bitwise_right_shift {
  TG_HD T operator()(T a, T b) const {
    using U = std::make_unsigned_t<T>;
    const bool inside = static_cast<U>(b) < sizeof(T) * 8;
    const int shift = inside ? static_cast<int>(b) : static_cast<int>(sizeof(T) * 8 - 1);
    const T shifted = static_cast<T>(a >> shift);
    return inside || std::is_signed_v<T> ? shifted : T(0);
  }
};

}  // namespace tapegrad::fn
