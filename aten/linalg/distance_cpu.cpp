// Distances between all pairs of points of two sets: kWidth points of the second set at once, so that vectors run over
// points and are full even with few coordinates.
#include <algorithm>
#include <cstring>
#include <memory>

#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/linalg/distance_steps.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

constexpr int64_t kWidth = 64;      // points of x2 side by side
constexpr int64_t kDepth = 128;     // coordinates at a time: their tile and the sums stay in the first cache
constexpr int64_t kRows = 128;      // points of x1 that share a tile
constexpr int64_t kWork = 1 << 24;  // differences of one chunk, so that there are enough for many threads

struct Sizes {
  int64_t batch, n, m, d;
};

// to[k][j] = coordinate `first + k` of point j, for `depth` coordinates and `width` points.
template <class C, class T>
void load_points(C* to, const T* from, int64_t stride, int64_t width, int64_t depth) {
  for (int64_t j = 0; j < width; ++j)
    for (int64_t k = 0; k < depth; ++k) to[k * kWidth + j] = static_cast<C>(from[j * stride + k]);
}

// sums[j] goes on over `depth` coordinates of one point of x1.
template <class C, class Steps>
void go_on(C* __restrict sums, const C* __restrict point, const C* __restrict tile, int64_t depth, const Steps& steps) {
  for (int64_t k = 0; k < depth; ++k) {
    const C a = point[k];
    const C* __restrict t = tile + k * kWidth;
    for (int64_t j = 0; j < kWidth; ++j) sums[j] = steps.step(sums[j], a - t[j]);
  }
}

template <class T, class Steps>
void distances(const T* x1, const T* x2, T* out, const Sizes& s, const Steps& steps) {
  using C = compute_t<T>;
  const int64_t rows = std::clamp<int64_t>(kWork / (kWidth * s.d), 4, kRows);
  const int64_t row_parts = (s.n + rows - 1) / rows, parts = (s.m + kWidth - 1) / kWidth;
  const int64_t grain = std::max<int64_t>(1, 65536 / (std::min(s.n, rows) * std::min(s.m, kWidth) * s.d));
  parallel_for(0, s.batch * parts * row_parts, grain, [&](int64_t begin, int64_t end) {
    struct Scratch {
      alignas(64) C tile[kDepth * kWidth], sums[kRows * kWidth], point[kDepth];
    };
    const auto scratch = std::make_unique<Scratch>();
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t b = unit / (parts * row_parts), j = unit / row_parts % parts * kWidth, i = unit % row_parts * rows;
      const int64_t width = std::min(kWidth, s.m - j), height = std::min(rows, s.n - i);
      std::fill(scratch->sums, scratch->sums + height * kWidth, C(0));
      if (width < kWidth) std::fill(scratch->tile, scratch->tile + kDepth * kWidth, C(0));
      for (int64_t k = 0; k < s.d; k += kDepth) {
        check_interrupt();
        const int64_t depth = std::min(kDepth, s.d - k);
        load_points(scratch->tile, x2 + (b * s.m + j) * s.d + k, s.d, width, depth);
        for (int64_t r = 0; r < height; ++r) {
          blocks::copy(depth, scratch->point, x1 + (b * s.n + i + r) * s.d + k);
          go_on(scratch->sums + r * kWidth, scratch->point, scratch->tile, depth, steps);
        }
      }
      for (int64_t r = 0; r < height; ++r)
        blocks::map(
            width, out + (b * s.n + i + r) * s.m + j, [&](C sum) { return steps.end(sum); },
            scratch->sums + r * kWidth);
    }
  });
}

constexpr int64_t kLanes = 16;   // points of x2 side by side in gradients
constexpr int64_t kSources = 4;  // points of x1 that are taken at once, so that sums are loaded and stored once for all

// sums[k][j] goes on over kSources points of x1 and `depth` coordinates.
template <class C, class Steps>
void add_slopes(C* __restrict sums, const C* __restrict tile, const C* const* points,
                const C (*__restrict shares)[kLanes], const C (*__restrict apart)[kLanes], int64_t depth,
                const Steps& steps) {
  for (int64_t k = 0; k < depth; ++k) {
    C a[kSources];
    for (int64_t s = 0; s < kSources; ++s) a[s] = points[s][k];
    C* __restrict to = sums + k * kLanes;
    const C* __restrict t = tile + k * kLanes;
#pragma GCC unroll 1
    for (int64_t j = 0; j < kLanes; ++j) {
      C sum = to[j];
#pragma GCC unroll 4
      for (int64_t s = 0; s < kSources; ++s) sum += steps.slope(shares[s][j], t[j] - a[s], apart[s][j]);
      to[j] = sum;
    }
  }
}

// Gradients of kLanes points of x2 and kDepth coordinates at a time; sums go over the points of x1 in their order.
template <class C, class Steps>
void slopes(const C* grad, const C* x1, const C* x2, const C* distances, C* out, const Sizes& s, const Steps& steps) {
  const int64_t tiles = (s.m + kLanes - 1) / kLanes, parts = (s.d + kDepth - 1) / kDepth;
  const int64_t work = s.n * kLanes * std::min(s.d, kDepth);
  parallel_for(0, s.batch * tiles * parts, std::max<int64_t>(1, 65536 / work), [&](int64_t begin, int64_t end) {
    struct Scratch {
      alignas(64) C tile[kDepth * kLanes], sums[kDepth * kLanes], shares[kSources][kLanes], apart[kSources][kLanes];
    };
    const auto scratch = std::make_unique<Scratch>();
    WorkCount done;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t b = unit / (tiles * parts), j = unit / parts % tiles * kLanes, first = unit % parts * kDepth;
      const int64_t width = std::min(kLanes, s.m - j), depth = std::min(kDepth, s.d - first);
      std::fill(scratch->sums, scratch->sums + depth * kLanes, C(0));
      for (int64_t r = 0; r < width; ++r)
        for (int64_t k = 0; k < depth; ++k) scratch->tile[k * kLanes + r] = x2[((b * s.m) + j + r) * s.d + first + k];
      for (int64_t i = 0; i < s.n; i += kSources) {
        done(kSources * kLanes * depth);
        const C* points[kSources];
        for (int64_t q = 0; q < kSources; ++q) {
          const bool there = i + q < s.n;
          const int64_t row = b * s.n + (there ? i + q : i);
          points[q] = x1 + row * s.d + first;
          C share[kLanes] = {}, distance[kLanes] = {};
          std::copy_n(grad + row * s.m + j, width, share);
          std::copy_n(distances + row * s.m + j, width, distance);
          for (int64_t l = 0; l < kLanes; ++l) {
            scratch->shares[q][l] = there ? steps.share(share[l], distance[l]) : C(0);
            scratch->apart[q][l] = distance[l];
          }
        }
        if (i + kSources <= s.n) {
          add_slopes(scratch->sums, scratch->tile, points, scratch->shares, scratch->apart, depth, steps);
          continue;
        }
        for (int64_t q = 0; i + q < s.n; ++q)  // a share of 0 would not do: times infinity it is NaN
          for (int64_t k = 0; k < depth; ++k)
            for (int64_t l = 0; l < kLanes; ++l)
              scratch->sums[k * kLanes + l] += steps.slope(
                  scratch->shares[q][l], scratch->tile[k * kLanes + l] - points[q][k], scratch->apart[q][l]);
      }
      for (int64_t r = 0; r < width; ++r)
        for (int64_t k = 0; k < depth; ++k) out[((b * s.m) + j + r) * s.d + first + k] = scratch->sums[k * kLanes + r];
    }
  });
}

}  // namespace

void cdist_grad_cpu(const Tensor& grad_output, const Tensor& x1, const Tensor& x2, const Tensor& distances, double p,
                    const Tensor& out) {
  const Sizes sizes = {x1.size(0), x1.size(1), x2.size(1), x1.size(2)};
  if (out.numel() == 0) return;
  if (sizes.n == 0) return void(std::memset(out.data_ptr(), 0, out.nbytes()));
  auto run = [&]<class C>() {
    distance::dispatch_slopes(p, [&](const auto& steps) {
      slopes(static_cast<const C*>(grad_output.data_ptr()), static_cast<const C*>(x1.data_ptr()),
             static_cast<const C*>(x2.data_ptr()), static_cast<const C*>(distances.data_ptr()),
             static_cast<C*>(out.data_ptr()), sizes, steps);
    });
  };
  out.dtype() == DType::float64 ? run.template operator()<double>() : run.template operator()<float>();
}

void cdist_cpu(const Tensor& x1, const Tensor& x2, double p, const Tensor& out) {
  if (out.numel() == 0) return;
  const Sizes sizes = {x1.size(0), x1.size(1), x2.size(1), x1.size(2)};
  if (sizes.d == 0) return void(std::memset(out.data_ptr(), 0, out.nbytes()));
  dispatch_floating(x1.dtype(), [&]<class T>() {
    distance::dispatch(p, [&](const auto& steps) {
      distances(static_cast<const T*>(x1.data_ptr()), static_cast<const T*>(x2.data_ptr()),
                static_cast<T*>(out.data_ptr()), sizes, steps);
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
