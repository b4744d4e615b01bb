// Sampling at given positions: a position's neighbours are the product of a few taps per dimension, each with a weight
// and the weight's derivative by the grid coordinate. For host and device.
#pragma once

#include <cstdint>
#include <string_view>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/upsample/taps.h"

namespace tapegrad::grid {

enum class Kind { Nearest, Linear, Cubic };
enum class Border { Zeros, Clip, Reflect };

struct Sampling {
  Kind kind;
  Border border;
  bool corners;  // -1 and 1 are the centres of the corner elements

  Sampling(std::string_view mode, std::string_view padding_mode, bool align_corners)
      : kind(mode == "nearest"    ? Kind::Nearest
             : mode == "bilinear" ? Kind::Linear
                                  : Kind::Cubic),
        border(padding_mode == "zeros"    ? Border::Zeros
               : padding_mode == "border" ? Border::Clip
                                          : Border::Reflect),
        corners(align_corners) {}
};

// A coordinate and its derivative by the one it was made from.
template <class C>
struct Coordinate {
  C x, slope;
};

template <class C>
TG_HD Coordinate<C> inside(const Sampling& s, Coordinate<C> p, int64_t size) {
  C last = static_cast<C>(size - 1);
  if (s.border == Border::Reflect) {
    // Mirrors at the elements' centres, or at their edges.
    C low = s.corners ? C(0) : C(-0.5), span = s.corners ? last : static_cast<C>(size);
    if (span == C(0)) return {C(0), C(0)};
    C d = p.x - low;
    if (d < 0) p.slope = -p.slope;
    d = math::magnitude(d);
    C extra = math::fmod(d, span);
    if (static_cast<int64_t>(math::floor(d / span)) % 2 == 0) {
      p.x = extra + low;
    } else {
      p.x = span - extra + low;
      p.slope = -p.slope;
    }
  }
  if (s.border == Border::Zeros) return p;
  if (!(p.x > C(0))) return {C(0), C(0)};
  if (p.x >= last) return {last, C(0)};
  return p;
}

template <class C>
struct Axis {
  int count;
  int64_t index[4];  // -1: outside
  C weight[4], slope[4];

  TG_HD Axis() : count(1), index{0}, weight{C(1)}, slope{C(0)} {}
  TG_HD Axis(const Sampling& s, C grid, int64_t size) {
    Coordinate<C> p;
    p.slope = static_cast<C>(s.corners ? size - 1 : size) / 2;
    p.x = s.corners ? (grid + 1) / 2 * static_cast<C>(size - 1) : ((grid + 1) * static_cast<C>(size) - 1) / 2;
    if (s.kind != Kind::Cubic) p = inside(s, p, size);
    // What no integer can hold, NaN included, is outside.
    if (!(math::magnitude(p.x) < C(1e9))) p.x = C(-100);
    if (s.kind == Kind::Nearest) {
      set(0, math::rint(p.x), size, C(1), C(0));
      count = 1;
      return;
    }
    C first = math::floor(p.x), t = p.x - first;
    if (s.kind == Kind::Linear) {
      set(0, first, size, C(1) - t, -p.slope);
      set(1, first + 1, size, t, p.slope);
      count = 2;
      return;
    }
    C w[4], d[4];
    resampling::cubic_weights(t, w);
    resampling::cubic_slopes(t, d);
    for (int k = 0; k < 4; ++k)
      set(k, inside(s, Coordinate<C>{first - 1 + static_cast<C>(k), C(1)}, size).x, size, w[k], d[k] * p.slope);
    count = 4;
  }

 private:
  TG_HD void set(int k, C position, int64_t size, C w, C d) {
    int64_t i = static_cast<int64_t>(position);
    index[k] = i >= 0 && i < size ? i : -1;
    weight[k] = w;
    slope[k] = d;
  }
};

// An image as the taps see it: `size` elements along depth (1 where there is none), height and width.
struct Image {
  int64_t size[3] = {1, 1, 1};
  int spatial;

  explicit Image(IntSpan input) : spatial(static_cast<int>(input.size()) - 2) {
    for (int d = 0; d < spatial; ++d) size[3 - spatial + d] = input[static_cast<size_t>(d) + 2];
  }
  TG_HD int64_t plane() const { return size[0] * size[1] * size[2]; }
};

// How many neighbours a position has at most.
inline int most_taps(const Sampling& s, const Image& image) {
  const int each = s.kind == Kind::Nearest ? 1 : s.kind == Kind::Linear ? 2 : 4;
  return image.spatial == 3 ? each * each * each : each * each;
}

// The neighbours of one position: offsets in a plane, weights, derivatives by x, y and z.
template <class C>
struct Taps {
  int count = 0;
  int64_t offset[16];
  C weight[16], slope[3][16];

  template <class T>
  TG_HD Taps(const Sampling& s, const T* grid, const Image& image) {
    const Axis<C> x(s, static_cast<C>(grid[0]), image.size[2]), y(s, static_cast<C>(grid[1]), image.size[1]);
    Axis<C> z;
    if (image.spatial == 3) z = Axis<C>(s, static_cast<C>(grid[2]), image.size[0]);
    for (int i = 0; i < z.count; ++i)
      for (int j = 0; j < y.count; ++j)
        for (int k = 0; k < x.count; ++k) {
          if (z.index[i] < 0 || y.index[j] < 0 || x.index[k] < 0) continue;
          offset[count] = (z.index[i] * image.size[1] + y.index[j]) * image.size[2] + x.index[k];
          weight[count] = z.weight[i] * y.weight[j] * x.weight[k];
          slope[0][count] = z.weight[i] * y.weight[j] * x.slope[k];
          slope[1][count] = z.weight[i] * y.slope[j] * x.weight[k];
          slope[2][count] = z.slope[i] * y.weight[j] * x.weight[k];
          ++count;
        }
  }
};

}  // namespace tapegrad::grid
