// Which input elements an output element of a resampled dimension is made of, and with what weights. One table per
// dimension; a resampling of several dimensions is their tensor product. Positions are computed in the type that the
// kernel computes in, so that nearest neighbours of float32 fall as PyTorch's do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tapegrad::resampling {

enum class Mode { Nearest, NearestExact, Linear, Cubic };

inline std::optional<Mode> mode_of(std::string_view name) {
  if (name == "nearest") return Mode::Nearest;
  if (name == "nearest-exact") return Mode::NearestExact;
  if (name == "linear") return Mode::Linear;
  if (name == "cubic") return Mode::Cubic;
  return {};
}

// `count` taps for each of `out` outputs; tap k of output i is at k * out + i.
template <class C>
struct Taps {
  int64_t in = 1, out = 1, count = 1;
  std::vector<int32_t> index;
  std::vector<C> weight;

  int64_t at(int64_t k, int64_t i) const { return index[static_cast<size_t>(k * out + i)]; }
  C weight_at(int64_t k, int64_t i) const { return weight[static_cast<size_t>(k * out + i)]; }
};

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

template <class C>
Taps<C> make_taps(Mode mode, int64_t in, int64_t out, bool align_corners, double scale_given) {
  Taps<C> t;
  t.in = in;
  t.out = out;
  t.count = mode == Mode::Cubic ? 4 : mode == Mode::Linear ? 2 : 1;
  t.index.resize(static_cast<size_t>(t.count * out));
  t.weight.resize(t.index.size(), C(1));
  bool nearest = mode == Mode::Nearest || mode == Mode::NearestExact;
  C scale = scale_given > 0 ? static_cast<C>(1.0 / scale_given) : static_cast<C>(in) / static_cast<C>(out);
  if (align_corners && !nearest) scale = out > 1 ? static_cast<C>(in - 1) / static_cast<C>(out - 1) : C(0);
  auto set = [&](int64_t k, int64_t i, int64_t position, C w) {
    size_t at = static_cast<size_t>(k * out + i);
    t.index[at] = static_cast<int32_t>(std::clamp<int64_t>(position, 0, in - 1));
    t.weight[at] = w;
  };
  for (int64_t i = 0; i < out; ++i) {
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
  }
  return t;
}

}  // namespace tapegrad::resampling
