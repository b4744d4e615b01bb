// Arithmetic on sizes, strides and counts that a caller has given: it remembers that a result did not fit into 64 bits,
// so that a formula is written as it is and asked once.
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
