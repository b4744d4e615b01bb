// Sampling at given positions and its gradients. A position's neighbours are the product of a few taps per dimension,
// each with a weight and the weight's derivative by the grid coordinate.
#include <cmath>

#include "tapegrad/aten/kernels_upsample.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/aten/upsample/taps.h"
#include "tapegrad/c10/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

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
Coordinate<C> inside(const Sampling& s, Coordinate<C> p, int64_t size) {
  C last = static_cast<C>(size - 1);
  if (s.border == Border::Reflect) {
    // Mirrors at the elements' centres, or at their edges.
    C low = s.corners ? C(0) : C(-0.5), span = s.corners ? last : static_cast<C>(size);
    if (span == C(0)) return {C(0), C(0)};
    C d = p.x - low;
    if (d < 0) p.slope = -p.slope;
    d = std::abs(d);
    C extra = std::fmod(d, span);
    if (static_cast<int64_t>(std::floor(d / span)) % 2 == 0) {
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

  Axis() : count(1), index{0}, weight{C(1)}, slope{C(0)} {}
  Axis(const Sampling& s, C grid, int64_t size) {
    Coordinate<C> p;
    p.slope = static_cast<C>(s.corners ? size - 1 : size) / 2;
    p.x = s.corners ? (grid + 1) / 2 * static_cast<C>(size - 1) : ((grid + 1) * static_cast<C>(size) - 1) / 2;
    if (s.kind != Kind::Cubic) p = inside(s, p, size);
    // What no integer can hold, NaN included, is outside.
    if (!(std::abs(p.x) < C(1e9))) p.x = C(-100);
    if (s.kind == Kind::Nearest) {
      set(0, std::nearbyint(p.x), size, C(1), C(0));
      count = 1;
      return;
    }
    C first = std::floor(p.x), t = p.x - first;
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
  void set(int k, C position, int64_t size, C w, C d) {
    int64_t i = static_cast<int64_t>(position);
    index[k] = i >= 0 && i < size ? i : -1;
    weight[k] = w;
    slope[k] = d;
  }
};

// The neighbours of one position: offsets in a plane, weights, derivatives by x, y and z.
template <class C>
struct Taps {
  int count = 0;
  int64_t offset[16];
  C weight[16], slope[3][16];

  template <class T>
  Taps(const Sampling& s, const T* grid, IntSpan input) {
    Axis<C> x(s, static_cast<C>(grid[0]), input[input.size() - 1]),
        y(s, static_cast<C>(grid[1]), input[input.size() - 2]), z;
    if (input.size() == 5) z = Axis<C>(s, static_cast<C>(grid[2]), input[2]);
    int64_t h = input[input.size() - 2], w = input[input.size() - 1];
    for (int i = 0; i < z.count; ++i)
      for (int j = 0; j < y.count; ++j)
        for (int k = 0; k < x.count; ++k) {
          if (z.index[i] < 0 || y.index[j] < 0 || x.index[k] < 0) continue;
          offset[count] = (z.index[i] * h + y.index[j]) * w + x.index[k];
          weight[count] = z.weight[i] * y.weight[j] * x.weight[k];
          slope[0][count] = z.weight[i] * y.weight[j] * x.slope[k];
          slope[1][count] = z.weight[i] * y.slope[j] * x.weight[k];
          slope[2][count] = z.slope[i] * y.weight[j] * x.weight[k];
          ++count;
        }
  }
};

int64_t product(IntSpan sizes, size_t first) {
  int64_t n = 1;
  for (size_t d = first; d < sizes.size(); ++d) n *= sizes[d];
  return n;
}

}  // namespace

void grid_sample_cpu(const Tensor& input, const Tensor& grid, std::string_view mode, std::string_view padding_mode,
                     bool align_corners, const Tensor& out) {
  if (out.numel() == 0) return;
  Sampling s(mode, padding_mode, align_corners);
  int64_t channels = input.size(1), plane = product(input.sizes(), 2), positions = product(out.sizes(), 2),
          n = input.ndim() - 2;
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T *from = static_cast<const T*>(input.data_ptr()), *at = static_cast<const T*>(grid.data_ptr());
    T* to = static_cast<T*>(out.data_ptr());
    parallel_for(0, input.size(0) * positions, 4096 / (channels + 4) + 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        Taps<C> taps(s, at + i * n, input.sizes());
        int64_t image = i / positions, p = i % positions;
        for (int64_t c = 0; c < channels; ++c) {
          const T* x = from + (image * channels + c) * plane;
          C sum = 0;
          for (int k = 0; k < taps.count; ++k) sum += taps.weight[k] * static_cast<C>(x[taps.offset[k]]);
          to[(image * channels + c) * positions + p] = T(sum);
        }
      }
    });
  });
}

void grid_sample_grad_cpu(const Tensor& output, const Tensor& input, const Tensor& grid, std::string_view mode,
                          std::string_view padding_mode, bool align_corners, const Tensor& input_grad,
                          const Tensor& grid_grad) {
  Sampling s(mode, padding_mode, align_corners);
  int64_t channels = input.size(1), plane = product(input.sizes(), 2), positions = product(output.sizes(), 2),
          n = input.ndim() - 2;
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T *from = static_cast<const T*>(input.data_ptr()), *at = static_cast<const T*>(grid.data_ptr());
    const T* g = static_cast<const T*>(output.data_ptr());
    T *to = static_cast<T*>(input_grad.data_ptr()), *to_grid = static_cast<T*>(grid_grad.data_ptr());
    // Positions may share neighbours, so an image is one thread's.
    parallel_for(0, input.size(0), 4096 / (channels * positions + channels * plane + 1) + 1,
                 [&](int64_t first, int64_t last) {
                   std::vector<C> sums(static_cast<size_t>(channels * plane));
                   for (int64_t image = first; image < last; ++image) {
                     std::fill(sums.begin(), sums.end(), C(0));
                     for (int64_t p = 0; p < positions; ++p) {
                       int64_t i = image * positions + p;
                       Taps<C> taps(s, at + i * n, input.sizes());
                       C d[3] = {};
                       for (int64_t c = 0; c < channels; ++c) {
                         const T* x = from + (image * channels + c) * plane;
                         C* sum = sums.data() + c * plane;
                         C here = static_cast<C>(g[(image * channels + c) * positions + p]);
                         for (int k = 0; k < taps.count; ++k) {
                           sum[taps.offset[k]] += here * taps.weight[k];
                           C value = here * static_cast<C>(x[taps.offset[k]]);
                           for (int a = 0; a < 3; ++a) d[a] += value * taps.slope[a][k];
                         }
                       }
                       for (int64_t a = 0; a < n; ++a) to_grid[i * n + a] = T(d[a]);
                     }
                     for (int64_t i = 0; i < channels * plane; ++i)
                       to[image * channels * plane + i] = T(sums[static_cast<size_t>(i)]);
                   }
                 });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
