// The parts of reductions. A functor has an accumulator type Acc, `identity()` (the accumulator of no elements), `step`
// (adds one element), `merge` (joins two accumulators) and `finish` (accumulator and number of elements to result). The
// result must not depend on the order of step and merge, except for rounding. `join`, where there is one, makes one
// element of two, so that step(a, join(x, y)) stands for step(step(a, x), y), `step4` is four steps for less than four,
// and `step4_half` that for elements that float16 holds. `join4` makes one float of four elements, for step_joined to
// take in, that is as good as four steps if it lies between kJoinedLeast and kJoinedMost, or if all four are zero.
// Nonzero: a functor that only tests whether elements are zero, so its step takes any type; this is its part that is
// the same for all types. Steps: the functor that is the same but for `finish`. Wide: the one whose loops serve on the
// CPU for a type that is rarely reduced; kRare: 16-bit formats have no loops of their own. Both only where the order of
// elements does not matter. Fields are the row's further scalar arguments.
#pragma once

#include <bit>

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::fn {

// Sums are accumulated in this type: double for the floating types, int64 for integers.
template <class T>
using sum_t = std::conditional_t<is_complex_type<T>, complex128_t,
                                 std::conditional_t<std::is_floating_point_v<T>, double, int64_t>>;
// And come out as this one.
template <class T>
using sum_result_t = std::conditional_t<std::is_integral_v<T>, int64_t, T>;

template <class To, class From>
TG_HD inline To widen(From x) {
  if constexpr (is_complex_type<From>)
    return To(x.real(), x.imag());
  else
    return static_cast<To>(x);
}

template <class T>
struct sum {
  using Acc = sum_t<T>;
  TG_HD Acc identity() const { return Acc(0); }
  TG_HD Acc step(Acc a, T x) const { return math::add(a, widen<Acc>(x)); }
  TG_HD T join(T x, T y) const
    requires std::is_floating_point_v<T>
  {
    return x + y;
  }
  TG_HD Acc merge(Acc a, Acc b) const { return math::add(a, b); }
  TG_HD sum_result_t<T> finish(Acc a, int64_t) const { return widen<sum_result_t<T>>(a); }
};
template <class T>
struct nansum : sum<T> {
  using Acc = sum_t<T>;
  using Steps = std::conditional_t<std::is_integral_v<T>, sum<T>, nansum>;
  TG_HD Acc step(Acc a, T x) const { return a + (x == x ? widen<Acc>(x) : Acc(0)); }
  T join(T x, T y) const = delete;  // the NaN of two infinities would be dropped
  TG_HD Acc step4(Acc a, T x, T y, T z, T w) const
    requires std::is_floating_point_v<T>
  {
    auto number = [](T v) { return v == v ? v : T(0); };
    return a + static_cast<Acc>((number(x) + number(y)) + (number(z) + number(w)));
  }
};
template <class T>
struct mean : sum<T> {
  using Acc = sum_t<T>;
  using Steps = sum<T>;
  TG_HD T finish(Acc a, int64_t n) const { return widen<T>(a / static_cast<double>(n)); }
};
template <class T>
struct prod {
  using Acc = sum_t<T>;
  using Wide = std::conditional_t<std::is_integral_v<T>, prod<int64_t>, prod>;
  TG_HD Acc identity() const { return Acc(1); }
  TG_HD Acc step(Acc a, T x) const { return math::mul(a, widen<Acc>(x)); }
  // The product of two float16 numbers is a float, exactly.
  TG_HD double step4_half(double a, float x, float y, float z, float w) const
    requires std::is_same_v<T, float>
  {
    return a * (static_cast<double>(x * y) * static_cast<double>(z * w));
  }
  TG_HD Acc merge(Acc a, Acc b) const { return math::mul(a, b); }
  TG_HD sum_result_t<T> finish(Acc a, int64_t) const { return widen<sum_result_t<T>>(a); }
};
// The exclusive or of the elements' bits, of floating ones as doubles.
template <class T>
struct xor_sum {
  using Acc = int64_t;
  TG_HD Acc identity() const { return 0; }
  TG_HD Acc step(Acc a, T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      return a ^ std::bit_cast<int64_t>(static_cast<double>(x));
    } else {
      return a ^ static_cast<int64_t>(x);
    }
  }
  TG_HD Acc merge(Acc a, Acc b) const { return a ^ b; }
  TG_HD int64_t finish(Acc a, int64_t) const { return a; }
};

struct nonzero_count {
  using Acc = int64_t;
  using Nonzero = nonzero_count;
  TG_HD Acc identity() const { return 0; }
  template <class X>
  TG_HD Acc step(Acc a, X x) const {
    return a + (x != X(0));
  }
  // Counted in numbers as wide as the elements first.
  template <class X>
  TG_HD Acc step4(Acc a, X x, X y, X z, X w) const {
    using Few = std::conditional_t<sizeof(X) == 2, uint16_t, int>;
    auto one = [](X v) { return static_cast<Few>(v != X(0)); };
    return a + static_cast<Few>(static_cast<Few>(one(x) + one(y)) + static_cast<Few>(one(z) + one(w)));
  }
  TG_HD Acc merge(Acc a, Acc b) const { return a + b; }
  TG_HD int64_t finish(Acc a, int64_t) const { return a; }
};
template <class T>
struct count_nonzero : nonzero_count {};

// The largest and the smallest element; NaN wins. The accumulator of float is float: nothing is rounded.
template <class T, bool kLargest>
struct extreme {
  using Acc = T;
  TG_HD Acc identity() const {
    using Limits = std::numeric_limits<T>;
    if constexpr (std::is_floating_point_v<T>)
      return kLargest ? -Limits::infinity() : Limits::infinity();
    else
      return kLargest ? Limits::lowest() : Limits::max();
  }
  TG_HD static T better(T x, T a) {  // one instruction, that gives a where one of them is NaN
    if constexpr (kLargest)
      return x > a ? x : a;
    else
      return x < a ? x : a;
  }
  TG_HD Acc step(Acc a, T x) const {
    const T m = better(x, a);
    return x == x ? m : x;
  }
  TG_HD Acc step4(Acc a, T x, T y, T z, T w) const {
    const T all = better(better(better(x, y), better(z, w)), a);
    const bool nan = (x != x) | (y != y) | (z != z) | (w != w);
    return nan ? std::numeric_limits<T>::quiet_NaN() : all;
  }
  TG_HD Acc merge(Acc a, Acc b) const { return step(a, b); }
  TG_HD T finish(Acc a, int64_t) const { return a; }
};
template <class T>
inline constexpr bool is_rare_integer = std::is_integral_v<T> && sizeof(T) < 4 && !std::is_same_v<T, uint8_t>;
template <class T>
struct amax : extreme<T, true> {
  using Wide = std::conditional_t<is_rare_integer<T>, amax<int32_t>, amax>;
};
template <class T>
struct amin : extreme<T, false> {
  using Wide = std::conditional_t<is_rare_integer<T>, amin<int32_t>, amin>;
};
// Bytes rather than bool as accumulators: loops over them vectorise.
template <bool kAll>
struct truths {
  using Acc = uint8_t;
  using Nonzero = truths;
  TG_HD Acc identity() const { return kAll; }
  template <class X>
  TG_HD Acc step(Acc a, X x) const {
    return merge(a, static_cast<Acc>(x != X(0)));
  }
  TG_HD Acc merge(Acc a, Acc b) const { return static_cast<Acc>(kAll ? a & b : a | b); }
  TG_HD bool finish(Acc a, int64_t) const { return a != 0; }
};
template <class T>
struct any : truths<false> {};
template <class T>
struct all : truths<true> {};

// Norms: of the magnitudes of the elements. Squares of float fit into double without overflow.
template <class T>
TG_HD inline double magnitude_of(T x) {
  if constexpr (is_complex_type<T>)
    return math::hypot(static_cast<double>(x.real()), static_cast<double>(x.imag()));
  else
    return math::magnitude(static_cast<double>(x));
}
// Of complex64, which is rarely reduced so, by the loops of complex128: the magnitudes are of doubles anyway.
template <template <class> class Norm, class T>
using wide_norm = Norm<std::conditional_t<std::is_same_v<T, complex64_t>, complex128_t, T>>;
template <class T>
struct norm_sum {
  using Acc = double;
  TG_HD Acc identity() const { return 0; }
  TG_HD Acc merge(Acc a, Acc b) const { return a + b; }
};
template <class T>
struct norm_0 : norm_sum<T> {
  static constexpr bool kRare = true;
  TG_HD double step(double a, T x) const { return a + (x != T(0) ? 1.0 : 0.0); }
  TG_HD math::real_t<T> finish(double a, int64_t) const { return static_cast<math::real_t<T>>(a); }
};
template <class T>
struct norm_1 : norm_sum<T> {
  using Wide = wide_norm<tapegrad::fn::norm_1, T>;
  TG_HD double step(double a, T x) const { return a + magnitude_of(x); }
  TG_HD math::real_t<T> finish(double a, int64_t) const { return static_cast<math::real_t<T>>(a); }
};
template <class T>
struct norm_2 : norm_sum<T> {
  TG_HD double step(double a, T x) const {
    if constexpr (is_complex_type<T>) {
      const double re = x.real(), im = x.imag();
      return a + (re * re + im * im);
    } else {
      const double v = x;
      return a + v * v;
    }
  }
  // Squares of float16 numbers are floats, and what four of them together lose is no more than float loses.
  TG_HD double step4_half(double a, float x, float y, float z, float w) const
    requires std::is_same_v<T, float>
  {
    return step_joined(a, join4(x, y, z, w));
  }
  // Those of bfloat16 do so only as long as they stay within float's range, and far from where its precision ends.
  static constexpr float kJoinedLeast = 0x1p-100F, kJoinedMost = 0x1p+126F;
  TG_HD float join4(float x, float y, float z, float w) const
    requires std::is_same_v<T, float>
  {
    return (x * x + y * y) + (z * z + w * w);
  }
  TG_HD double step_joined(double a, float squares) const { return a + static_cast<double>(squares); }
  TG_HD math::real_t<T> finish(double a, int64_t) const { return static_cast<math::real_t<T>>(math::sqrt(a)); }
};
template <class T>
struct norm_p : norm_sum<T> {
  using Wide = wide_norm<tapegrad::fn::norm_p, T>;
  static constexpr bool kRare = true;
  double p;
  explicit norm_p(double exponent) : p(exponent) {}
  template <class Other>
  explicit norm_p(const norm_p<Other>& other) : p(other.p) {}
  TG_HD double step(double a, T x) const { return a + math::pow(magnitude_of(x), p); }
  TG_HD math::real_t<T> finish(double a, int64_t) const { return static_cast<math::real_t<T>>(math::pow(a, 1 / p)); }
};
template <class T, bool kLargest>
struct norm_extreme {
  using Acc = double;
  TG_HD Acc identity() const { return kLargest ? 0 : std::numeric_limits<double>::infinity(); }
  TG_HD Acc step(Acc a, T x) const { return merge(a, magnitude_of(x)); }
  TG_HD Acc merge(Acc a, Acc b) const { return (kLargest ? b > a : b < a) | (b != b) ? b : a; }
  TG_HD math::real_t<T> finish(Acc a, int64_t) const { return static_cast<math::real_t<T>>(a); }
};
template <class T>
struct norm_max : norm_extreme<T, true> {
  using Wide = wide_norm<tapegrad::fn::norm_max, T>;
};
template <class T>
struct norm_min : norm_extreme<T, false> {
  using Wide = wide_norm<tapegrad::fn::norm_min, T>;
  static constexpr bool kRare = true;
};

// Variance from the sums of d and d^2, the distances from the mean; `correction` is taken off the count.
struct centered {
  double correction;
  static constexpr bool kCentered = true;
  TG_HD double variance(double sum, double squares, int64_t n) const {
    const double count = static_cast<double>(n), freedom = count - correction;
    return (squares - sum * sum / count) / (freedom > 0 ? freedom : 0.0);
  }
};
template <class T>
struct var : centered {
  TG_HD T finish(double sum, double squares, int64_t n) const { return static_cast<T>(variance(sum, squares, n)); }
};
template <class T>
struct std_dev : centered {
  TG_HD T finish(double sum, double squares, int64_t n) const {
    return static_cast<T>(math::sqrt(variance(sum, squares, n)));
  }
};

}  // namespace tapegrad::fn
