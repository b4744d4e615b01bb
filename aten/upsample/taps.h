// Which input elements an output element of a resampled dimension is made of, and with what weights. One table per
// dimension; a resampling of several dimensions is their tensor product. Positions are computed in the type that the
// kernel computes in, so that nearest neighbours of float32 fall as PyTorch's do. The arithmetic is for host and
// device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/c10/table.h"

namespace tapegrad::resampling {

enum class Mode { Nearest, NearestExact, Linear, Cubic, SmoothLinear, SmoothCubic, Lanczos };

// Antialiasing filters, widened to cover all input elements under an output element.
constexpr bool is_smooth(Mode m) { return m >= Mode::SmoothLinear; }

inline std::optional<Mode> mode_of(std::string_view name) {
  if (name == "nearest") return Mode::Nearest;
  if (name == "nearest-exact") return Mode::NearestExact;
  if (name == "linear") return Mode::Linear;
  if (name == "cubic") return Mode::Cubic;
  if (name == "smooth-linear") return Mode::SmoothLinear;
  if (name == "smooth-cubic") return Mode::SmoothCubic;
  if (name == "lanczos") return Mode::Lanczos;
  return {};
}

// `count` taps for each of `out` outputs; tap k of output i is at k * out + i.
template <class C>
struct Taps {  // of the CPU, as tables
  int64_t in = 1, out = 1, count = 1;
  Table<int32_t> index;
  Table<C> weight;

  int64_t at(int64_t k, int64_t i) const { return index[static_cast<size_t>(k * out + i)]; }
  C weight_at(int64_t k, int64_t i) const { return weight[static_cast<size_t>(k * out + i)]; }
};

// Keys' cubic convolution with a = -0.75 for the four neighbours of a position t behind the second one, and its
// derivative by t.
template <class C>
TG_HD void cubic_weights(C t, C w[4]) {
  constexpr C a = C(-0.75);
  auto inner = [](C x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };        // |x| <= 1
  auto outer = [](C x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };  // 1 < |x| < 2
  w[0] = outer(t + 1);
  w[1] = inner(t);
  w[2] = inner(1 - t);
  w[3] = outer(2 - t);
}

template <class C>
TG_HD void cubic_slopes(C t, C w[4]) {
  constexpr C a = C(-0.75);
  auto inner = [](C x) { return (3 * (a + 2) * x - 2 * (a + 3)) * x; };
  auto outer = [](C x) { return (3 * a * x - 10 * a) * x + 8 * a; };
  w[0] = outer(t + 1);
  w[1] = inner(t);
  w[2] = -inner(1 - t);
  w[3] = -outer(2 - t);
}

// The value of a filter at a distance of x >= 0 elements, and where it ends: a triangle, Keys' cubic with a = -0.5
// (Pillow's), Lanczos' windowed sinc with three lobes.
TG_HD inline double filter_end(Mode m) { return m == Mode::SmoothLinear ? 1.0 : m == Mode::SmoothCubic ? 2.0 : 3.0; }

template <class C>
TG_HD C filter_at(Mode m, C x) {
  if (x >= static_cast<C>(filter_end(m))) return C(0);
  if (m == Mode::SmoothLinear) return C(1) - x;
  if (m == Mode::SmoothCubic) {
    constexpr C a = C(-0.5);
    return x < C(1) ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  }
  if (x == math::floor(x)) return x == C(0) ? C(1) : C(0);
  constexpr C pi = C(3.14159265358979323846);
  return math::sin(pi * x) * math::sin(pi * x / C(3)) * C(3) / (pi * pi * x * x);
}

// The taps of one dimension. Those that an output has no use for have weight 0.
template <class C>
struct Rule {
  Mode mode = Mode::Nearest;
  bool corners = false;
  int64_t in = 1, out = 1, count = 1;
  C scale = C(1);

  Rule() = default;
  Rule(Mode m, int64_t in_size, int64_t out_size, bool align_corners, double scale_given)
      : mode(m), corners(align_corners), in(in_size), out(out_size) {
    const bool nearest = mode == Mode::Nearest || mode == Mode::NearestExact;
    scale = scale_given > 0 ? static_cast<C>(1.0 / scale_given) : static_cast<C>(in) / static_cast<C>(out);
    if (corners && !nearest) scale = out > 1 ? static_cast<C>(in - 1) / static_cast<C>(out - 1) : C(0);
    count = mode == Mode::Cubic ? 4 : mode == Mode::Linear ? 2 : 1;
    if (!is_smooth(mode)) return;
    for (int64_t i = 0; i < out; ++i) {
      int64_t first, last;
      covered(i, first, last);
      count = std::max(count, last - first);
    }
  }

  // Calls set(k, element, weight) for the taps of output i.
  template <class F>
  TG_HD void taps(int64_t i, F&& set) const {
    const auto clamped = [this](int64_t position) { return position < 0 ? 0 : position > in - 1 ? in - 1 : position; };
    const C here = static_cast<C>(i);
    if (mode == Mode::Nearest) {
      set(0, clamped(static_cast<int64_t>(math::floor(here * scale))), C(1));
    } else if (mode == Mode::NearestExact) {
      set(0, clamped(static_cast<int64_t>(math::floor((here + C(0.5)) * scale))), C(1));
    } else if (is_smooth(mode)) {
      smooth(i, set);
    } else {
      C x = corners ? scale * here : scale * (here + C(0.5)) - C(0.5);
      if (mode == Mode::Linear) {
        x = in == out ? here : x > C(0) ? x : C(0);
        const int64_t first = clamped(static_cast<int64_t>(x));
        C w = x - static_cast<C>(first);
        w = w < C(0) ? C(0) : w > C(1) ? C(1) : w;
        set(0, first, C(1) - w);
        set(1, clamped(first + 1), w);
      } else {
        const C first = math::floor(x);
        C w[4];
        cubic_weights(x - first, w);
        for (int64_t k = 0; k < 4; ++k) set(k, clamped(static_cast<int64_t>(first) - 1 + k), w[k]);
      }
    }
  }

 private:
  // Smooth filters: output i is the mean of the elements around it, weighted by the filter, which is as wide as the
  // step between outputs.
  TG_HD void covered(int64_t i, int64_t& first, int64_t& last) const {
    const C reach = static_cast<C>(filter_end(mode)) * (scale > C(1) ? scale : C(1));
    const C center = scale * (static_cast<C>(i) + C(0.5));
    first = static_cast<int64_t>(center - reach + C(0.5));
    first = first < 0 ? 0 : first;
    first = first > in - 1 ? in - 1 : first;
    last = static_cast<int64_t>(center + reach + C(0.5));
    last = last > in ? in : last;
  }
  template <class F>
  TG_HD void smooth(int64_t i, F&& set) const {
    int64_t first, last;
    covered(i, first, last);
    const C center = scale * (static_cast<C>(i) + C(0.5)), narrow = scale >= C(1) ? C(1) / scale : C(1);
    const auto weight = [&](int64_t k) {
      return first + k < last ? filter_at(mode, math::magnitude((static_cast<C>(first + k) - center + C(0.5)) * narrow))
                              : C(0);
    };
    C total = 0;
    for (int64_t k = 0; k < count; ++k) total += weight(k);
    for (int64_t k = 0; k < count; ++k)
      set(k, first + k < in - 1 ? first + k : in - 1, total != C(0) ? weight(k) / total : weight(k));
  }
};

template <class C>
Taps<C> make_taps(Mode mode, int64_t in, int64_t out, bool align_corners, double scale_given) {
  const Rule<C> rule(mode, in, out, align_corners, scale_given);
  Taps<C> t;
  t.in = in;
  t.out = out;
  t.count = rule.count;
  t.index.resize(static_cast<size_t>(t.count * t.out));
  t.weight.resize(t.index.size());
  for_entries(out, [&](int64_t i) {
    rule.taps(i, [&](int64_t k, int64_t element, C w) {
      const size_t at = static_cast<size_t>(k * out + i);
      t.index[at] = static_cast<int32_t>(element);
      t.weight[at] = w;
    });
  });
  return t;
}

// The type that weights and sums of elements T have.
template <class T>
using sum_t = typename std::conditional_t<std::is_integral_v<T>, std::type_identity<float>,
                                          std::type_identity<compute_t<T>>>::type;

template <class T, class C>
TG_HD T rounded(C x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(
        math::clamp(math::rint(x), C(std::numeric_limits<T>::min()), C(std::numeric_limits<T>::max())));
  else
    return T(x);
}

}  // namespace tapegrad::resampling
