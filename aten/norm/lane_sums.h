// Sums over a line: sixteen chains of additions side by side, which the compiler turns into vectors, closed every
// 4096 elements into a double, so that long lines lose nothing. The order depends on the length only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace tapegrad::cpu::TG_ISA {

template <class C>
inline double close_lanes(C* lane, int64_t n) {
  for (int64_t width = n / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  return static_cast<double>(lane[0]);
}

inline constexpr int64_t kSumLanes = 32;
inline constexpr int64_t kSumBlock = 4096;

// Sum of f(0) ... f(n - 1).
template <class C, class F>
inline double lane_sum(int64_t n, F&& f) {
  double total = 0;
  for (int64_t from = 0; from < n; from += kSumBlock) {
    int64_t to = std::min(n, from + kSumBlock), i = from;
    C lane[kSumLanes] = {};
    for (; i + kSumLanes <= to; i += kSumLanes)
      for (int64_t l = 0; l < kSumLanes; ++l) lane[l] += f(i + l);
    for (int64_t l = 0; i < to; ++i, ++l) lane[l] += f(i);
    total += close_lanes(lane, kSumLanes);
  }
  return total;
}

// Two sums over one pass: of a(i) and of b(i).
template <class C, class A, class B>
inline void lane_sums(int64_t n, A&& a, B&& b, double& sum_a, double& sum_b) {
  sum_a = sum_b = 0;
  for (int64_t from = 0; from < n; from += kSumBlock) {
    int64_t to = std::min(n, from + kSumBlock), i = from;
    C la[kSumLanes] = {}, lb[kSumLanes] = {};
    for (; i + kSumLanes <= to; i += kSumLanes) {
      for (int64_t l = 0; l < kSumLanes; ++l) la[l] += a(i + l);
      for (int64_t l = 0; l < kSumLanes; ++l) lb[l] += b(i + l);
    }
    for (int64_t l = 0; i < to; ++i, ++l) {
      la[l] += a(i);
      lb[l] += b(i);
    }
    sum_a += close_lanes(la, kSumLanes);
    sum_b += close_lanes(lb, kSumLanes);
  }
}

}  // namespace tapegrad::cpu::TG_ISA
