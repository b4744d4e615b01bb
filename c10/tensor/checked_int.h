// Integers with a sticky overflow flag, for arithmetic on sizes, strides and counts given by a caller: a formula is
// written as usual and checked once at its end.
#pragma once

#include <cstdint>

namespace tapegrad {

class CheckedInt {
 public:
  constexpr CheckedInt(int64_t value) noexcept : value_(value) {}

  constexpr bool fits() const noexcept { return fits_; }
  // Unspecified unless it fits.
  constexpr int64_t value() const noexcept { return value_; }

  constexpr CheckedInt& operator+=(CheckedInt b) noexcept {
    fits_ = !__builtin_add_overflow(value_, b.value_, &value_) && fits_ && b.fits_;
    return *this;
  }
  constexpr CheckedInt& operator-=(CheckedInt b) noexcept {
    fits_ = !__builtin_sub_overflow(value_, b.value_, &value_) && fits_ && b.fits_;
    return *this;
  }
  constexpr CheckedInt& operator*=(CheckedInt b) noexcept {
    fits_ = !__builtin_mul_overflow(value_, b.value_, &value_) && fits_ && b.fits_;
    return *this;
  }
  friend constexpr CheckedInt operator+(CheckedInt a, CheckedInt b) noexcept { return a += b; }
  friend constexpr CheckedInt operator-(CheckedInt a, CheckedInt b) noexcept { return a -= b; }
  friend constexpr CheckedInt operator*(CheckedInt a, CheckedInt b) noexcept { return a *= b; }

 private:
  int64_t value_;
  bool fits_ = true;
};

}  // namespace tapegrad
