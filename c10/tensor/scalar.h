// A number of the host language: bool, integer, floating point or complex, with its kind remembered, since
// the kind takes part in type promotion. A plain value. Integers from 2^63 on are a kind of their own (UInt).
#pragma once

#include <complex>
#include <concepts>
#include <cstdint>
#include <string>

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad {

class Scalar {
 public:
  enum class Kind : uint8_t { Bool, Int, UInt, Float, Complex };

  constexpr Scalar() : kind_(Kind::Int), i_(0) {}
  constexpr Scalar(bool b) : kind_(Kind::Bool), i_(b) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  constexpr Scalar(T i)
      : kind_(std::unsigned_integral<T> && static_cast<int64_t>(i) < 0 ? Kind::UInt : Kind::Int),
        i_(static_cast<int64_t>(i)) {}
  template <std::floating_point T>
  constexpr Scalar(T d) : kind_(Kind::Float), re_(static_cast<double>(d)) {}
  constexpr Scalar(complex128_t z) : kind_(Kind::Complex), re_(z.real()), im_(z.imag()) {}

  constexpr Kind kind() const { return kind_; }
  constexpr bool is_bool() const { return kind_ == Kind::Bool; }
  constexpr bool is_integral() const { return kind_ <= Kind::UInt; }  // bool included
  constexpr bool is_floating_point() const { return kind_ == Kind::Float; }
  constexpr bool is_complex() const { return kind_ == Kind::Complex; }

  // The value as T. Integers wrap as a C cast does, but those from 2^63 on raise an error unless T is uint64_t.
  template <class T>
  constexpr T to() const {
    if constexpr (is_complex_type<T>) {
      using R = typename T::value_type;
      return T(static_cast<R>(real()), static_cast<R>(kind_ == Kind::Complex ? im_ : 0.0));
    } else if constexpr (std::is_same_v<T, ComplexHalf>) {
      return T(to<complex64_t>());
    } else if constexpr (is_half_type<T> || is_float8_type<T>) {
      return T(static_cast<float>(real()));
    } else if constexpr (std::is_same_v<T, bool>) {
      return is_integral() ? i_ != 0 : re_ != 0 || (kind_ == Kind::Complex && im_ != 0);
    } else if constexpr (std::is_integral_v<T>) {
      if (kind_ <= Kind::Int || (kind_ == Kind::UInt && std::is_same_v<T, uint64_t>)) return static_cast<T>(i_);
      if (kind_ == Kind::UInt) throw_too_large(i_);
      if constexpr (std::is_same_v<T, uint64_t>)
        if (re_ >= 0x1p63 && re_ < 0x1p64) return static_cast<T>(re_);
      // A conversion out of int64's range is undefined in C++: pin it.
      if (!(re_ > -9.3e18 && re_ < 9.22e18)) return static_cast<T>(re_ > 0 ? INT64_MAX : INT64_MIN);
      return static_cast<T>(static_cast<int64_t>(re_));
    } else {
      return static_cast<T>(real());
    }
  }

  // The dtype that a tensor made of this number alone has, for a given default floating dtype.
  constexpr DType natural_dtype(DType default_float = DType::float32) const {
    switch (kind_) {
      case Kind::Bool:
        return DType::bool_;
      case Kind::Int:
      case Kind::UInt:
        return DType::int64;
      case Kind::Float:
        return default_float;
      default:
        return to_complex(default_float);
    }
  }
  // The dtype that holds the number exactly.
  constexpr DType exact_dtype() const { return kind_ == Kind::UInt ? DType::uint64 : natural_dtype(DType::float64); }

  Scalar operator-() const {
    if (kind_ <= Kind::Int) return Scalar(static_cast<int64_t>(0 - static_cast<uint64_t>(i_)));
    return kind_ == Kind::Complex ? Scalar(complex128_t(-re_, -im_)) : Scalar(-real());
  }
  bool operator==(const Scalar& o) const {
    if (is_integral() && o.is_integral()) return i_ == o.i_ && (kind_ == Kind::UInt) == (o.kind_ == Kind::UInt);
    return to<complex128_t>() == o.to<complex128_t>();
  }

 private:
  constexpr double real() const {
    if (kind_ == Kind::UInt) return static_cast<double>(static_cast<uint64_t>(i_));
    return kind_ <= Kind::Int ? static_cast<double>(i_) : re_;
  }
  [[noreturn]] TG_API TG_COLD static void throw_too_large(int64_t bits);

  Kind kind_;
  union {
    int64_t i_;
    double re_;
  };
  double im_ = 0;
};

TG_API std::string to_string(const Scalar& s);

}  // namespace tapegrad
