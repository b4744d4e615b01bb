// Which input elements an output element of a resampled dimension is made of, and with what weights. One table per
// dimension; a resampling of several dimensions is their tensor product. Positions are computed in the type that the
// kernel computes in, so that nearest neighbours of float32 fall as PyTorch's do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "tapegrad/c10/table.h"

namespace tapegrad::resampling {

enum class Mode { Nearest, NearestExact, Linear, Cubic, SmoothLinear, SmoothCubic, Lanczos };

// Filters that are stretched over all input elements that an output element covers.
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
struct Taps {
  int64_t in = 1, out = 1, count = 1;
  Table<int32_t> index;
  Table<C> weight;

  int64_t at(int64_t k, int64_t i) const { return index[static_cast<size_t>(k * out + i)]; }
  C weight_at(int64_t k, int64_t i) const { return weight[static_cast<size_t>(k * out + i)]; }
};

template <class C>
void resize(Taps<C>& t) {
  t.index.resize(static_cast<size_t>(t.count * t.out));
  t.weight.resize(t.index.size());
}

// Keys' cubic convolution with a = -0.75 for the four neighbours of a position t behind the second one, and its
// derivative by t.
template <class C>
void cubic_weights(C t, C w[4]) {
  constexpr C a = C(-0.75);
  auto inner = [](C x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };        // |x| <= 1
  auto outer = [](C x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };  // 1 < |x| < 2
  w[0] = outer(t + 1);
  w[1] = inner(t);
  w[2] = inner(1 - t);
  w[3] = outer(2 - t);
}

template <class C>
void cubic_slopes(C t, C w[4]) {
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
inline double filter_end(Mode m) { return m == Mode::SmoothLinear ? 1.0 : m == Mode::SmoothCubic ? 2.0 : 3.0; }

template <class C>
C filter_at(Mode m, C x) {
  if (x >= static_cast<C>(filter_end(m))) return C(0);
  if (m == Mode::SmoothLinear) return C(1) - x;
  if (m == Mode::SmoothCubic) {
    constexpr C a = C(-0.5);
    return x < C(1) ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  }
  if (x == C(0)) return C(1);
  constexpr C pi = C(3.14159265358979323846);
  return std::sin(pi * x) * std::sin(pi * x / C(3)) * C(3) / (pi * pi * x * x);
}

// Output i is the mean of the elements around it, weighted by the filter, which is as wide as the step between outputs.
// Taps that an output has no use for have weight 0.
template <class C>
void smooth_taps(Mode mode, C scale, Taps<C>& t) {
  C reach = static_cast<C>(filter_end(mode)) * std::max(scale, C(1)), narrow = scale >= C(1) ? C(1) / scale : C(1);
  auto bounds = [&](int64_t i) {
    C center = scale * (static_cast<C>(i) + C(0.5));
    int64_t first = std::max<int64_t>(static_cast<int64_t>(center - reach + C(0.5)), 0);
    return std::pair(std::min(first, t.in - 1), std::min<int64_t>(static_cast<int64_t>(center + reach + C(0.5)), t.in));
  };
  for (int64_t i = 0; i < t.out; ++i) t.count = std::max(t.count, bounds(i).second - bounds(i).first);
  resize(t);
  for_entries(t.out, [&](int64_t i) {
    auto [first, last] = bounds(i);
    C center = scale * (static_cast<C>(i) + C(0.5)), total = 0;
    for (int64_t k = 0; k < t.count; ++k) {
      size_t at = static_cast<size_t>(k * t.out + i);
      t.index[at] = static_cast<int32_t>(std::min(first + k, t.in - 1));
      t.weight[at] =
          first + k < last ? filter_at(mode, std::abs((static_cast<C>(first + k) - center + C(0.5)) * narrow)) : C(0);
      total += t.weight[at];
    }
    if (total != C(0))
      for (int64_t k = 0; k < t.count; ++k) t.weight[static_cast<size_t>(k * t.out + i)] /= total;
  });
}

template <class C>
Taps<C> make_taps(Mode mode, int64_t in, int64_t out, bool align_corners, double scale_given) {
  Taps<C> t;
  t.in = in;
  t.out = out;
  bool nearest = mode == Mode::Nearest || mode == Mode::NearestExact;
  C scale = scale_given > 0 ? static_cast<C>(1.0 / scale_given) : static_cast<C>(in) / static_cast<C>(out);
  if (align_corners && !nearest) scale = out > 1 ? static_cast<C>(in - 1) / static_cast<C>(out - 1) : C(0);
  if (is_smooth(mode)) {
    smooth_taps(mode, scale, t);
    return t;
  }
  t.count = mode == Mode::Cubic ? 4 : mode == Mode::Linear ? 2 : 1;
  resize(t);
  auto set = [&](int64_t k, int64_t i, int64_t position, C w) {
    size_t at = static_cast<size_t>(k * out + i);
    t.index[at] = static_cast<int32_t>(std::clamp<int64_t>(position, 0, in - 1));
    t.weight[at] = w;
  };
  for_entries(out, [&](int64_t i) {
    C here = static_cast<C>(i);
    if (mode == Mode::Nearest) {
      set(0, i, static_cast<int64_t>(std::floor(here * scale)), C(1));
    } else if (mode == Mode::NearestExact) {
      set(0, i, static_cast<int64_t>(std::floor((here + C(0.5)) * scale)), C(1));
    } else {
      C x = align_corners ? scale * here : scale * (here + C(0.5)) - C(0.5);
      if (mode == Mode::Linear) {
        x = in == out ? here : std::max(x, C(0));
        int64_t first = std::min<int64_t>(static_cast<int64_t>(x), in - 1);
        C w = std::clamp(x - static_cast<C>(first), C(0), C(1));
        set(0, i, first, C(1) - w);
        set(1, i, first + 1, w);
      } else {
        C first = std::floor(x), w[4];
        cubic_weights(x - first, w);
        for (int64_t k = 0; k < 4; ++k) set(k, i, static_cast<int64_t>(first) - 1 + k, w[k]);
      }
    }
  });
  return t;
}

}  // namespace tapegrad::resampling
