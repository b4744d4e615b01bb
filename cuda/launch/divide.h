// Division of element numbers by a constant of the launch, and coordinates in a space of three dimensions: in 32 bits
// by a multiplication where every number fits, else by plain divisions. Functions of host and device.
#pragma once

#include "tapegrad/cuda/launch/index.h"

namespace tapegrad::cuda {

class Divider {
 public:
  Divider() = default;
  // For numbers below `limit`.
  Divider(int64_t divisor, int64_t limit) : divisor_(divisor < 1 ? 1 : divisor) {
    narrow_ = divisor_ < kLimit && limit <= kLimit;
    if (narrow_) fast_ = FastDivide(static_cast<uint32_t>(divisor_));
  }
  TG_HD void divide(int64_t n, int64_t& q, int64_t& rest) const {
    if (narrow_) {
      uint32_t quotient, left;
      fast_.divide(static_cast<uint32_t>(n), quotient, left);
      q = quotient;
      rest = left;
    } else {
      q = n / divisor_;
      rest = n % divisor_;
    }
  }

 private:
  static constexpr int64_t kLimit = int64_t{1} << 31;
  int64_t divisor_ = 1;
  FastDivide fast_;
  bool narrow_ = true;
};

struct Point {
  int64_t at[3];
};

// `size` elements along each of three dimensions, the last one the fastest; fewer are widened by leading ones.
struct Space {
  int64_t size[3] = {1, 1, 1};

  Space() = default;
  Space(int64_t z, int64_t y, int64_t x) : size{z, y, x}, by_x_(x, numel()), by_y_(y, numel()) {}
  TG_HD int64_t numel() const { return size[0] * size[1] * size[2]; }
  TG_HD Point point(int64_t i) const {
    Point p;
    int64_t rest;
    by_x_.divide(i, rest, p.at[2]);
    by_y_.divide(rest, p.at[0], p.at[1]);
    return p;
  }
  TG_HD int64_t place(int64_t z, int64_t y, int64_t x) const { return (z * size[1] + y) * size[2] + x; }

 private:
  Divider by_x_, by_y_;
};

}  // namespace tapegrad::cuda
