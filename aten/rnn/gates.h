// The curves of recurrent cells, written so that a loop over them is all vector arithmetic.
#pragma once

#include <bit>
#include <cmath>

#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/rnn/cells.h"
#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad::cpu::TG_ISA {

// tanh to 2 ulp, by an exponential where that does not cancel and by a polynomial below: S. Moshier, Cephes
// Mathematical Library, tanhf. A quarter of the time of the library's, which is exact to 1 ulp.
template <class Exp>
TG_INLINE float hyperbolic(float x, Exp&& exp) {
  const float z = x * x;
  const float small =
      ((((-5.70498872745e-3f * z + 2.06390887954e-2f) * z - 5.37397155531e-2f) * z + 1.33314422036e-1f) * z -
       3.33332819422e-1f) *
          z * x +
      x;
  const float size = std::fabs(x);
  const float large = std::copysign(1.0f - 2.0f / (exp(2.0f * size) + 1.0f), x);
  return size < 0.625f ? small : large;
}

struct FastCurves : rnn::cells::Curves {
  static float tanh(float x) {
    return hyperbolic(x, [](float y) { return math::exp(y); });
  }
  static double tanh(double x) { return math::tanh(x); }
};

// For results of 16 bits: e^x to 4e-6 of it, with the coefficients of tg_short_expf (vector_math_cpu.cpp). Inline,
// since around a call the loop stores all of its vectors. Results are at least 2^-126 and at most e^88.
struct ShortCurves {
  TG_INLINE static float exp(float x) {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
    const float most = x > 88.0f ? 88.0f : x, bounded = most < -87.0f ? -87.0f : most;
    const float t = bounded * 1.44269504f, k = t + kRound, f = t - (k - kRound);
    const float p = (((0.00956133194f * f + 0.0559053682f) * f + 0.24024421f) * f + 0.693123043f) * f + 1.0f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(k) << 23));
  }
  TG_INLINE static float logistic(float x) { return 1.0f / (1.0f + exp(-x)); }
  TG_INLINE static float tanh(float x) { return hyperbolic(x, exp); }
};

template <class T>
using CurvesOf = std::conditional_t<is_half_type<T>, ShortCurves, FastCurves>;
// Cells of tensors of type T.
template <class T>
using FastLstm = rnn::cells::Lstm<compute_t<T>, CurvesOf<T>>;
template <class T>
using FastGru = rnn::cells::Gru<compute_t<T>, CurvesOf<T>>;

// Where `n` numbers in the compute type are written that belong to `to`; put() then stores them there.
template <class T>
compute_t<T>* computed_target(T* to, [[maybe_unused]] compute_t<T>* scratch) {
  if constexpr (is_half_type<T>)
    return scratch;
  else
    return to;
}
template <class T>
void put([[maybe_unused]] const compute_t<T>* from, [[maybe_unused]] int64_t n, [[maybe_unused]] T* to) {
  if constexpr (is_half_type<T>) convert_line(to, from, n);
}

}  // namespace tapegrad::cpu::TG_ISA
