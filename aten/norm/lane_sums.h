// Sums over a line: sixteen independent chains of additions, which the compiler vectorises, are added to a double every
// 4096 elements, so that long lines lose no precision. The order depends on the length only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tapegrad/aten/iterate/blocks/blocks.h"

namespace tapegrad::cpu::TG_ISA {

template <class C>
inline double close_lanes(C* lane, int64_t n) {
  for (int64_t width = n / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  return static_cast<double>(lane[0]);
}

inline constexpr int64_t kSumLanes = blocks::kWidth;
inline constexpr int64_t kSumBlock = 4096;

// Sum of f(element i of each row in) for i < n.
template <class C, class F, class... In>
inline double lane_sum(int64_t n, F&& f, const In*... in) {
  double total = 0;
  for (int64_t from = 0; from < n; from += kSumBlock) {
    int64_t to = std::min(n, from + kSumBlock), i = from;
    C lane[kSumLanes] = {};
    for (; i + kSumLanes <= to; i += kSumLanes)
      blocks::each([&](int64_t l, auto... x) { lane[l] += f(x...); }, (in + i)...);
    for (int64_t l = 0; i < to; ++i, ++l) lane[l] += f(static_cast<C>(in[i])...);
    total += close_lanes(lane, kSumLanes);
  }
  return total;
}

// Two sums over one pass: of a(...) and of b(...).
template <class C, class A, class B, class... In>
inline void lane_sums(int64_t n, A&& a, B&& b, double& sum_a, double& sum_b, const In*... in) {
  sum_a = sum_b = 0;
  for (int64_t from = 0; from < n; from += kSumBlock) {
    int64_t to = std::min(n, from + kSumBlock), i = from;
    C la[kSumLanes] = {}, lb[kSumLanes] = {};
    for (; i + kSumLanes <= to; i += kSumLanes) {
      auto add = [&](int64_t l, auto... x) {
        la[l] += a(x...);
        lb[l] += b(x...);
      };
      blocks::each(add, (in + i)...);
    }
    for (int64_t l = 0; i < to; ++i, ++l) {
      la[l] += a(static_cast<C>(in[i])...);
      lb[l] += b(static_cast<C>(in[i])...);
    }
    sum_a += close_lanes(la, kSumLanes);
    sum_b += close_lanes(lb, kSumLanes);
  }
}

}  // namespace tapegrad::cpu::TG_ISA
