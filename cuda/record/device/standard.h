// What functors use of the C++ library, for compilers that have none: NVRTC, and the host's in the place of NVRTC on a
// simulated device. Given to them under the names of the headers that functors include.
#pragma once

#include "tapegrad/c10/macros.h"

namespace std {

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;
using size_t = decltype(sizeof(0));

template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T, class... Some>
inline constexpr bool is_one_of = (is_same_v<T, Some> || ...);
template <class T>
inline constexpr bool is_floating_point_v = is_one_of<T, float, double>;
template <class T>
inline constexpr bool is_unsigned_v = is_one_of<T, bool, uint8_t, uint16_t, uint32_t, uint64_t>;
template <class T>
inline constexpr bool is_integral_v = is_unsigned_v<T> || is_one_of<T, char, int8_t, int16_t, int32_t, int64_t>;
template <class T>
inline constexpr bool is_signed_v = !is_unsigned_v<T>;

template <bool, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool c, class A, class B>
using conditional_t = typename conditional<c, A, B>::type;
template <class T>
using make_unsigned_t =
    conditional_t<sizeof(T) == 1, uint8_t,
                  conditional_t<sizeof(T) == 2, uint16_t, conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

template <class To, class From>
__host__ __device__ constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

template <class T>
struct numeric_limits;
template <>
struct numeric_limits<float> {
  static constexpr int digits = 24;
  __host__ __device__ static constexpr float infinity() { return bit_cast<float>(0x7f800000u); }
  __host__ __device__ static constexpr float quiet_NaN() { return bit_cast<float>(0x7fc00000u); }
  __host__ __device__ static constexpr float max() { return 3.40282346638528859811704183484516925e+38F; }
  __host__ __device__ static constexpr float lowest() { return -max(); }
  __host__ __device__ static constexpr float min() { return 1.17549435082228750796873653722224568e-38F; }
  __host__ __device__ static constexpr float denorm_min() { return bit_cast<float>(1u); }
  __host__ __device__ static constexpr float epsilon() { return 1.1920928955078125e-07F; }
};
template <>
struct numeric_limits<double> {
  static constexpr int digits = 53;
  __host__ __device__ static constexpr double infinity() { return bit_cast<double>(0x7ff0000000000000ul); }
  __host__ __device__ static constexpr double quiet_NaN() { return bit_cast<double>(0x7ff8000000000000ul); }
  __host__ __device__ static constexpr double max() { return 1.79769313486231570814527423731704357e+308; }
  __host__ __device__ static constexpr double lowest() { return -max(); }
  __host__ __device__ static constexpr double min() { return 2.22507385850720138309023271733240406e-308; }
  __host__ __device__ static constexpr double denorm_min() { return bit_cast<double>(1ul); }
  __host__ __device__ static constexpr double epsilon() { return 2.2204460492503130808472633361816406e-16; }
};

// Named by functors, in branches that are not taken for real numbers.
template <class R>
struct complex {
  using value_type = R;
  __host__ __device__ constexpr complex(R re = R(), R im = R()) : re_(re), im_(im) {}
  __host__ __device__ constexpr R real() const { return re_; }
  __host__ __device__ constexpr R imag() const { return im_; }
  bool operator==(const complex&) const = default;

 private:
  R re_, im_;
};
#define TG_NAMED(name) \
  template <class T>   \
  T name(T);
TG_NAMED(exp)
TG_NAMED(expm1)
TG_NAMED(log)
TG_NAMED(log10)
TG_NAMED(log1p)
TG_NAMED(sin)
TG_NAMED(cos)
TG_NAMED(tan)
TG_NAMED(asin)
TG_NAMED(acos)
TG_NAMED(atan)
TG_NAMED(sinh)
TG_NAMED(cosh)
TG_NAMED(tanh)
TG_NAMED(asinh)
TG_NAMED(acosh)
TG_NAMED(atanh)
TG_NAMED(sqrt)
#undef TG_NAMED
template <class A, class B>
A pow(A, B);
template <class A>
A atan2(A, A);
__host__ __device__ inline float ldexp(float x, int n) { return ::ldexpf(x, n); }
__host__ __device__ inline double ldexp(double x, int n) { return ::ldexp(x, n); }

}  // namespace std

using std::int16_t;
using std::int32_t;
using std::int64_t;
using std::int8_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;
using std::uintptr_t;

namespace tapegrad {
template <class T>
inline constexpr bool is_complex_type = false;
template <class R>
inline constexpr bool is_complex_type<std::complex<R>> = true;
}  // namespace tapegrad

#if defined(__CUDACC_RTC__)  // as in cuda/launch/nvcc.h
#define __builtin_isunordered(x, y) ((x) != (x) || (y) != (y))
#define __builtin_fabsf(x) fabsf(x)
#define __builtin_fabs(x) fabs(x)
#define __builtin_fmaf(x, y, z) fmaf(x, y, z)
#define __builtin_fma(x, y, z) fma(x, y, z)
#endif
